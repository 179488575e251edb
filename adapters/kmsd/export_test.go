package kmsd

import (
	"net/http"
	"os"
	"syscall"
	"time"
)

// DuplicateLock copies the descriptor of the folder's lock, as a fork does.
func (s *Server) DuplicateLock() (*os.File, error) {
	fd, err := syscall.Dup(int(s.store.directory.lock.Fd()))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "lock"), nil
}

// OnUnfinishedFile sets the function that is called before a written file is renamed.
func (s *Server) OnUnfinishedFile(f func()) { s.store.directory.beforeRename = f }

// DestroyDue is what Serve does every minute.
func (s *Server) DestroyDue() error { return s.store.deleteDue() }

// SetSignatureTime replaces the clock with which signature times are compared.
func (s *Server) SetSignatureTime(now func() time.Time) { s.auth.now = now }

// Authenticate returns the principal that signed a request.
func (s *Server) Authenticate(r *http.Request, body []byte) (string, error) {
	return s.auth.authenticate(r, body)
}

// Dispatch runs an operation as a principal, without HTTP and signature.
func (s *Server) Dispatch(principal, operation string, body []byte) (any, error) {
	handle, ok := operations[operation]
	if !ok || !mayCall(principal, operation) {
		return nil, unsupported("no")
	}
	return handle(s, &call{operation: operation, principal: principal, body: body})
}

// Operations lists what is served.
func Operations() (names []string) {
	for name := range operations {
		names = append(names, name)
	}
	return names
}
