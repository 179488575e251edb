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

// OnUnfinishedFile is called when a file is written but not yet in its place.
func (s *Server) OnUnfinishedFile(f func()) { s.store.directory.unfinished = f }

// DestroyDue is what Serve does every minute.
func (s *Server) DestroyDue() error { return s.store.deleteDue() }

// SetSignatureTime replaces the clock that signatures are held against.
func (s *Server) SetSignatureTime(now func() time.Time) { s.auth.now = now }

// Authenticate tells who signed a request.
func (s *Server) Authenticate(r *http.Request, body []byte) (string, error) {
	principal, p := s.auth.authenticate(r, body)
	if p != nil {
		return "", p
	}
	return principal, nil
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
