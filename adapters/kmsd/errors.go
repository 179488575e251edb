package kmsd

import (
	"fmt"
	"net/http"
	"time"
)

// apiError is an error as AWS KMS words it: a name that clients act on, a message for
// people, and status 400 or 500. Messages carry no values but key ids.
type apiError struct {
	status  int
	name    string
	message string
}

func (e *apiError) Error() string { return e.name + ": " + e.message }

func refuse(name, message string, args ...any) error {
	return &apiError{status: http.StatusBadRequest, name: name, message: fmt.Sprintf(message, args...)}
}

func validation(message string, args ...any) error {
	return refuse("ValidationException", message, args...)
}

func notFound(id string) error {
	return refuse("NotFoundException", "Key %q does not exist; check its id and the key folder of this server", truncate(id))
}

func invalidState(k key) error {
	if k.State == statePendingDeletion {
		return refuse("KMSInvalidStateException", "Key %s is pending deletion until %s; cancel the deletion first", k.ID, k.DeletionAt.Format(time.RFC3339))
	}
	return refuse("KMSInvalidStateException", "Key %s is not pending deletion", k.ID)
}

func invalidCiphertext() error {
	return refuse("InvalidCiphertextException", "The ciphertext or its encryption context is not what this key sealed")
}

func unsupported(message string) error { return refuse("UnsupportedOperationException", "%s", message) }

// truncate bounds an id that a caller sent before an error quotes it.
func truncate(id string) string { return id[:min(len(id), 256)] }
