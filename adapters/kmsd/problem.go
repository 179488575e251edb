package kmsd

import (
	"fmt"
	"net/http"
	"time"
)

// problem is an error as AWS KMS words it: a name that clients act on, a message
// for people, and status 400 or 500. Messages carry no values but key ids.
type problem struct {
	status  int
	name    string
	message string
}

func (p *problem) Error() string { return p.name + ": " + p.message }

func refuse(name, message string, args ...any) *problem {
	if len(args) > 0 {
		message = fmt.Sprintf(message, args...)
	}
	return &problem{status: http.StatusBadRequest, name: name, message: message}
}

func validation(message string, args ...any) *problem {
	return refuse("ValidationException", message, args...)
}

func notFound(id string) *problem {
	return refuse("NotFoundException", "Key %q does not exist; check its id and the key folder of this server", printable(id))
}

func alreadyExists(alias string) *problem {
	return refuse("AlreadyExistsException", "An alias with the name %q already exists; choose another one", printable(alias))
}

func disabled(k key) *problem {
	return refuse("DisabledException", "Key %s is disabled; enable it first", k.id)
}

func invalidState(k *key) *problem {
	if k.state == statePendingDeletion {
		return refuse("KMSInvalidStateException", "Key %s is pending deletion until %s; cancel the deletion first", k.id, k.deletionAt.Format(time.RFC3339))
	}
	return refuse("KMSInvalidStateException", "Key %s is not pending deletion", k.id)
}

func invalidCiphertext() *problem {
	return refuse("InvalidCiphertextException", "The ciphertext or its encryption context is not what this key sealed")
}

func unsupported(message string) *problem {
	return refuse("UnsupportedOperationException", "%s", message)
}

func internal() *problem {
	return &problem{status: http.StatusInternalServerError, name: "KMSInternalException", message: "The server failed; see its log, and try again"}
}

// printable bounds an id that a caller sent before it is quoted.
func printable(id string) string {
	if len(id) > 256 {
		return id[:256]
	}
	return id
}
