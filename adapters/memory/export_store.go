package memory

import (
	"bytes"
	"cmp"
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

var exportName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$`)

const maxExportName = 1000

// checkExport fails if a name is invalid or ctx has ended.
func checkExport(ctx context.Context, name string) error {
	if len(name) > maxExportName || !exportName.MatchString(name) {
		return fault.New(fault.Internal, "export.name_invalid", "names in the export store are paths of letters, digits and . _ - without a leading dot; report this defect")
	}
	if err := ctx.Err(); err != nil {
		return fault.New(fault.Unavailable, "export.unavailable", "the caller has given up; try again").WithCause(err)
	}
	return nil
}

// PutIfAbsent implements ports.ExportStore.
func (s *ExportStore) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	if err := checkExport(ctx, name); err != nil {
		return err
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
func (s *ExportStore) Get(ctx context.Context, name string) ([]byte, error) {
	if err := checkExport(ctx, name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	content, found := s.documents[name]
	if !found {
		return nil, fault.New(fault.NotFound, "export.not_found", "there is no such document; list them")
	}
	return bytes.Clone(content), nil
}

// List implements ports.ExportStore.
func (s *ExportStore) List(ctx context.Context, prefix string) ([]string, error) {
	folder := prefix[:max(strings.LastIndexByte(prefix, '/'), 0)]
	if err := checkExport(ctx, cmp.Or(folder, "any")); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.AppendSeq([]string{}, maps.Keys(s.documents))
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}

// Delete implements ports.ExportStore.
func (s *ExportStore) Delete(ctx context.Context, name string) error {
	if err := checkExport(ctx, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.documents, name)
	return nil
}
