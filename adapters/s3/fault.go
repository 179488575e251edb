package s3

import (
	"context"
	"errors"
	"net/http"
	"slices"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/erpbackbone/backbone/domain/fault"
)

const (
	codeNotFound    = "export.not_found"
	codeLocked      = "export.locked"
	codeUnsupported = "export.unsupported"
)

// Codes of the store's errors.
const (
	errorNoBucket  = "NoSuchBucket"
	errorNoKey     = "NoSuchKey"
	errorNoVersion = "NoSuchVersion"
	errorNotFound  = "NotFound" // of answers to HEAD
	errorNoLock    = "ObjectLockConfigurationNotFoundError"
	errorCondition = "PreconditionFailed"
	errorConflict  = "ConditionalRequestConflict" // another conditional write is under way
)

// accessErrors are the store's errors about credentials and region whose status is 400 or, the
// last one of Versity S3 Gateway, 404.
var accessErrors = []string{"AuthorizationHeaderMalformed", "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "XAdminUserNotFound"}

func unavailable(cause error) *fault.Error {
	return fault.New(fault.Unavailable, "export.unavailable", "the bucket of the export store cannot be read or written; check that the store runs and is not full, then try again").WithCause(cause)
}

func invalidName() *fault.Error {
	return fault.New(fault.Internal, "export.name_invalid", "names in the export store are paths of letters, digits and . _ - without a leading dot; report this defect")
}

func tooLarge() *fault.Error {
	return fault.New(fault.TooLarge, "export.too_large", "the document is larger than the 64 MiB that the export store takes; look who wrote it")
}

// translate turns the SDK's errors into faults. Their texts, which may quote the store, stay
// in the cause. An error that is not known counts as unavailable.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return unavailable(ctx.Err())
	}
	status := statusOf(err)
	switch {
	case hasCode(err, errorNoBucket):
		return fault.New(fault.Unavailable, "export.bucket_not_found", "the export store has no bucket of the configured name; check name, endpoint and region, or make the bucket").WithCause(err)
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusMovedPermanently, hasCode(err, accessErrors...):
		return fault.New(fault.Unavailable, "export.access_denied", "the export store refuses our credentials, region or rights; an operator has to check them, then try again").WithCause(err)
	case status == http.StatusNotImplemented:
		return fault.New(fault.FailedPrecondition, codeUnsupported, "the export store does not serve an operation that documents need; use a store with conditional writes").WithCause(err)
	}
	return unavailable(err)
}

// isKeyMissing reports whether the store has no such object, or no such version of it.
func isKeyMissing(err error) bool { return hasCode(err, errorNoKey, errorNoVersion, errorNotFound) }

// isConditionFailed reports whether a conditional write met another object or write.
func isConditionFailed(err error) bool { return hasCode(err, errorCondition, errorConflict) }

// isRefused reports whether the store answered a request and did not want to serve it.
func isRefused(err error) bool {
	status := statusOf(err)
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError
}

func hasCode(err error, codes ...string) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains(codes, api.ErrorCode())
}

// statusOf returns the status of the answer that an error is about, 0 without an answer.
func statusOf(err error) int {
	if answer, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return answer.HTTPStatusCode()
	}
	return 0
}
