package memory

import (
	"bytes"
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// ExportStore keeps exported documents in the process's memory, for tests.
type ExportStore struct {
	mu        sync.Mutex
	documents map[string][]byte
}

var _ ports.ExportStore = (*ExportStore)(nil)

// NewExportStore makes an empty store.
func NewExportStore() *ExportStore { return &ExportStore{documents: map[string][]byte{}} }

var exportName = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

// PutIfAbsent implements ports.ExportStore.
func (s *ExportStore) PutIfAbsent(_ context.Context, name string, content []byte) error {
	if !exportName.MatchString(name) {
		return fault.New(fault.Invalid, "export.name_invalid", "a name has segments of letters, digits, dots, underscores and hyphens; choose another")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stored, taken := s.documents[name]; taken && !bytes.Equal(stored, content) {
		return fault.New(fault.Conflict, "export.name_taken", "another document has this name; look at it")
	}
	s.documents[name] = bytes.Clone(content)
	return nil
}

// Get implements ports.ExportStore.
func (s *ExportStore) Get(_ context.Context, name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, found := s.documents[name]
	if !found {
		return nil, fault.New(fault.NotFound, "export.not_found", "there is no such document; list them")
	}
	return bytes.Clone(content), nil
}

// List implements ports.ExportStore.
func (s *ExportStore) List(_ context.Context, prefix string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.documents))
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}

// Delete implements ports.ExportStore.
func (s *ExportStore) Delete(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.documents, name)
	return nil
}
