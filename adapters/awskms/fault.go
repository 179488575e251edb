package awskms

import (
	"context"
	"errors"
	"time"

	"github.com/aws/smithy-go"

	"github.com/erpbackbone/backbone/domain/fault"
)

// retryAfter is what a caller is told to wait when the service is away.
const retryAfter = 2 * time.Second

func unavailable() *fault.Error {
	return fault.New(fault.Unavailable, "kms.unavailable", "the key service does not answer as it should; try again").WithRetryAfter(retryAfter)
}

func denied() *fault.Error {
	return fault.New(fault.Unavailable, "kms.access_denied", "the key service refuses our credentials or rights; an operator has to check them, then try again").WithRetryAfter(time.Minute)
}

func ciphertextInvalid() *fault.Error {
	return fault.New(fault.Invalid, "kms.ciphertext_invalid", "the wrapped key does not open in this context; it or the context is not the original, so restore the key store's row")
}

func requestInvalid() *fault.Error {
	return fault.New(fault.Invalid, "kms.request_invalid", "the key service refuses the request for its form; check ids, sizes and limits")
}

const (
	codeAliasTaken      = "kms.alias_taken" // stays inside: Create looks the winner up
	codeKeyNotFound     = "kms.key_not_found"
	codePendingDeletion = "kms.key_pending_deletion"
)

// final maps the errors that trying again does not change.
var final = map[string]func() *fault.Error{
	"NotFoundException": func() *fault.Error {
		return fault.New(fault.NotFound, codeKeyNotFound, "the key service does not have that key; check its id, region and account, or restore from an export made before it was destroyed")
	},
	"DisabledException": func() *fault.Error {
		return fault.New(fault.FailedPrecondition, "kms.key_disabled", "the key is disabled in the key service; an operator has to enable it")
	},
	// The keys made here are in no other unusable state than this one.
	"KMSInvalidStateException": func() *fault.Error {
		return fault.New(fault.FailedPrecondition, codePendingDeletion, "the key is scheduled for deletion; use the key of the current epoch")
	},
	"InvalidCiphertextException": ciphertextInvalid,
	"IncorrectKeyException": func() *fault.Error {
		return fault.New(fault.Invalid, "kms.key_mismatch", "the wrapped key was wrapped under another key; check the epoch in the key store's row")
	},
	"InvalidKeyUsageException": func() *fault.Error {
		return fault.New(fault.Invalid, "kms.key_usage", "the key is of another sort than this needs; check which key is configured")
	},
	"AlreadyExistsException": func() *fault.Error {
		return fault.New(fault.Conflict, codeAliasTaken, "the alias names a key already; look it up")
	},
	"ValidationException":       requestInvalid,
	"InvalidArnException":       requestInvalid,
	"InvalidAliasNameException": requestInvalid,
	"SerializationException":    requestInvalid,
	"UnsupportedOperationException": func() *fault.Error {
		return fault.New(fault.Internal, "kms.unsupported", "the key service does not serve this operation; check that the endpoint is AWS KMS or kmsd")
	},
}

// rights are the errors about who we are.
var rights = map[string]bool{
	"AccessDeniedException": true, "UnrecognizedClientException": true, "InvalidSignatureException": true, "IncompleteSignature": true,
	"IncompleteSignatureException": true, "MissingAuthenticationTokenException": true, "MissingAuthenticationToken": true,
	"InvalidClientTokenId": true, "ExpiredTokenException": true, "ExpiredToken": true, "OptInRequired": true, "NotAuthorized": true,
}

// translate turns the SDK's errors into faults. Everything that is not known to be
// final counts as unavailable: the keys are there, and the caller fails closed.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return unavailable().WithCause(ctx.Err())
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		if known, ok := final[api.ErrorCode()]; ok {
			return known().WithCause(err)
		}
		if rights[api.ErrorCode()] {
			return denied().WithCause(err)
		}
	}
	var invalid smithy.InvalidParamsError
	if errors.As(err, &invalid) {
		return requestInvalid().WithCause(err)
	}
	return unavailable().WithCause(err)
}
