package awskms

import (
	"context"
	"errors"
	"time"

	"github.com/aws/smithy-go"

	"github.com/erpbackbone/backbone/domain/fault"
)

// retryAfter is how long a caller should wait when the service is unavailable.
const retryAfter = 2 * time.Second

func unavailable() *fault.Error {
	return fault.New(fault.Unavailable, "kms.unavailable", "the key service does not answer as it should; try again").WithRetryAfter(retryAfter)
}

func denied() *fault.Error {
	return fault.New(fault.Unavailable, "kms.access_denied", "the key service refuses our credentials or rights; an operator has to check them, then try again").WithRetryAfter(time.Minute)
}

var (
	ciphertextInvalid = newFault(fault.Invalid, "kms.ciphertext_invalid", "the wrapped key does not open in this context; it or the context is not the original, so restore the key store's row")
	requestInvalid    = newFault(fault.Invalid, "kms.request_invalid", "the key service refuses the request for its form; check ids, sizes and limits")
)

const (
	codeAliasTaken      = "kms.alias_taken" // Create handles it: it looks the winner up
	codeKeyNotFound     = "kms.key_not_found"
	codePendingDeletion = "kms.key_pending_deletion"

	errorKeyUsage = "InvalidKeyUsageException"
)

// permanent maps the service's errors that another try does not change to faults.
var permanent = map[string]func() *fault.Error{
	"NotFoundException": newFault(fault.NotFound, codeKeyNotFound, "the key service does not have that key; check its id, region and account, or restore from an export made before it was destroyed"),
	"DisabledException": newFault(fault.FailedPrecondition, "kms.key_disabled", "the key is disabled in the key service; an operator has to enable it"),
	// The keys made here are in no other unusable state than this one.
	"KMSInvalidStateException":      newFault(fault.FailedPrecondition, codePendingDeletion, "the key is scheduled for deletion; use the key of the current epoch"),
	"InvalidCiphertextException":    ciphertextInvalid,
	"IncorrectKeyException":         newFault(fault.Invalid, "kms.key_mismatch", "the wrapped key was wrapped under another key; check the epoch in the key store's row"),
	errorKeyUsage:                   newFault(fault.Invalid, "kms.key_usage", "the key is of another sort than this needs; check which key is configured"),
	"AlreadyExistsException":        newFault(fault.Conflict, codeAliasTaken, "the alias names a key already; look it up"),
	"ValidationException":           requestInvalid,
	"InvalidArnException":           requestInvalid,
	"InvalidAliasNameException":     requestInvalid,
	"SerializationException":        requestInvalid,
	"UnsupportedOperationException": newFault(fault.Internal, "kms.unsupported", "the key service does not serve this operation; check that the endpoint is AWS KMS or kmsd"),
}

func newFault(kind fault.Kind, code, detail string) func() *fault.Error {
	return func() *fault.Error { return fault.New(kind, code, detail) }
}

// accessErrors are the service's errors about the client's credentials and rights.
var accessErrors = map[string]bool{
	"AccessDeniedException": true, "UnrecognizedClientException": true, "InvalidSignatureException": true, "IncompleteSignature": true,
	"IncompleteSignatureException": true, "MissingAuthenticationTokenException": true, "MissingAuthenticationToken": true,
	"InvalidClientTokenId": true, "ExpiredTokenException": true, "ExpiredToken": true, "OptInRequired": true, "NotAuthorized": true,
}

// translate turns the SDK's errors into faults. An error that is not known to be permanent
// counts as unavailable: the keys exist, and the caller fails closed.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return unavailable().WithCause(ctx.Err())
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		if known, ok := permanent[api.ErrorCode()]; ok {
			return known().WithCause(err)
		}
		if accessErrors[api.ErrorCode()] {
			return denied().WithCause(err)
		}
	}
	if _, ok := errors.AsType[smithy.InvalidParamsError](err); ok {
		return requestInvalid().WithCause(err)
	}
	return unavailable().WithCause(err)
}
