package ports

import "context"

// ExportStore keeps documents outside the database and its backups: receipts of
// erasures, key-store exports, certificates. Names are slash-separated paths of
// [A-Za-z0-9._-].
type ExportStore interface {
	// PutIfAbsent stores a document for ever, durably before it returns. If the same bytes
	// have the name it does nothing; if other bytes have it: export.name_taken (Conflict).
	PutIfAbsent(ctx context.Context, name string, content []byte) error
	// Get reads a document. export.not_found (NotFound).
	Get(ctx context.Context, name string) ([]byte, error)
	// List returns the names below a prefix, ascending.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete removes a document that must not be kept, such as an old key-store export. A
	// name that does not exist is no error.
	Delete(ctx context.Context, name string) error
}
