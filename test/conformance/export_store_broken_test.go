package conformance_test

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// exports are sound; each breakage replaces what it breaks.
type exports struct{ ports.ExportStore }

// overwrittenExports replaces what is stored.
type overwrittenExports struct{ exports }

func (e overwrittenExports) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	if ctx.Err() == nil {
		_ = e.Delete(ctx, name)
	}
	return e.ExportStore.PutIfAbsent(ctx, name, content)
}

// keptExports refuses also the bytes that are stored.
type keptExports struct{ exports }

func (e keptExports) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	if stored, err := e.Get(ctx, name); err == nil && bytes.Equal(stored, content) {
		content = append(bytes.Clone(content), '.')
	}
	return e.ExportStore.PutIfAbsent(ctx, name, content)
}

// trimmedExports stores texts, not bytes.
type trimmedExports struct{ exports }

func (e trimmedExports) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	return e.ExportStore.PutIfAbsent(ctx, name, bytes.TrimSpace(content))
}

// reversedExports lists the newest names first.
type reversedExports struct{ exports }

func (e reversedExports) List(ctx context.Context, prefix string) ([]string, error) {
	names, err := e.ExportStore.List(ctx, prefix)
	slices.Reverse(names)
	return names, err
}

// allExports lists the names below every prefix.
type allExports struct{ exports }

func (e allExports) List(ctx context.Context, prefix string) ([]string, error) {
	if strings.Contains(prefix, "/") {
		return e.ExportStore.List(ctx, prefix[:strings.Index(prefix, "/")])
	}
	return e.ExportStore.List(ctx, prefix)
}

// undeletedExports deletes nothing.
type undeletedExports struct{ exports }

func (undeletedExports) Delete(ctx context.Context, _ string) error { return ctx.Err() }

// prefixDeletedExports deletes all names that begin with the name.
type prefixDeletedExports struct{ exports }

func (e prefixDeletedExports) Delete(ctx context.Context, name string) error {
	names, err := e.List(ctx, name)
	for _, n := range names {
		_ = e.ExportStore.Delete(ctx, n)
	}
	return err
}

// emptyExports reads missing documents as empty ones.
type emptyExports struct{ exports }

func (e emptyExports) Get(ctx context.Context, name string) ([]byte, error) {
	if content, err := e.ExportStore.Get(ctx, name); err == nil {
		return content, nil
	}
	return nil, nil
}

// anyNameExports takes every name.
type anyNameExports struct{ exports }

func (e anyNameExports) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	return e.ExportStore.PutIfAbsent(ctx, strings.TrimLeft(name, "./"), content)
}

// detachedExports finishes calls whose caller has given up.
type detachedExports struct{ exports }

func (e detachedExports) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	return e.ExportStore.PutIfAbsent(context.WithoutCancel(ctx), name, content)
}

var brokenExports = []struct {
	name     string
	wrap     func(exports) ports.ExportStore
	mustFail []string
}{
	{"overwrites documents", func(e exports) ports.ExportStore { return overwrittenExports{e} }, []string{"other bytes of a taken name are refused", "one of twenty writers wins a name"}},
	{"refuses the same bytes", func(e exports) ports.ExportStore { return keptExports{e} }, []string{"same bytes may be stored again", "concurrent writers of the same bytes all succeed"}},
	{"trims documents", func(e exports) ports.ExportStore { return trimmedExports{e} }, []string{"document is read byte for byte"}},
	{"lists in reverse", func(e exports) ports.ExportStore { return reversedExports{e} }, []string{"names below a prefix are listed in order"}},
	{"ignores the end of a prefix", func(e exports) ports.ExportStore { return allExports{e} }, []string{"names below a prefix are listed in order"}},
	{"deletes nothing", func(e exports) ports.ExportStore { return undeletedExports{e} }, []string{"deleted document is gone for every process", "name of a deleted document is free"}},
	{"deletes by prefix", func(e exports) ports.ExportStore { return prefixDeletedExports{e} }, []string{"deleting keeps names that begin alike"}},
	{"reads missing documents as empty", func(e exports) ports.ExportStore { return emptyExports{e} }, []string{"missing document is not found"}},
	{"takes every name", func(e exports) ports.ExportStore { return anyNameExports{e} }, []string{"invalid names are refused"}},
	{"ignores the end of a call", func(e exports) ports.ExportStore { return detachedExports{e} }, []string{"cancelled call stores and deletes nothing"}},
}

// TestRunExportStoreFailsOnBrokenExports runs the suite on all broken stores in child processes
// and demands that the named sub-tests failed there.
func TestRunExportStoreFailsOnBrokenExports(t *testing.T) {
	t.Parallel()
	for _, b := range brokenExports {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			requireNoticed(t, "TestExportStoreSuite", b.name, b.mustFail)
		})
	}
}

// TestExportStoreSuite runs in the child process; without a name it runs on a sound store.
func TestExportStoreSuite(t *testing.T) {
	t.Parallel()
	name := os.Getenv(brokenVariable)
	wrap := func(e exports) ports.ExportStore { return e }
	for _, b := range brokenExports {
		if b.name == name {
			wrap = b.wrap
		}
	}
	conformance.RunExportStore(t, func(*testing.T) conformance.ExportStoreHarness {
		s := wrap(exports{memory.NewExportStore()})
		return conformance.ExportStoreHarness{Store: s, Other: s}
	})
}
