package keyrotation_test

import (
	"bytes"
	"context"
	"sort"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// exportStore is the fixture's export store.
type exportStore struct{ *rotationFixture }

func (e exportStore) PutIfAbsent(_ context.Context, name string, content []byte) error {
	return inject(e.faultInjector, "PutIfAbsent "+name, func() error {
		defer e.lock()()
		if have, taken := e.exports[name]; taken && !bytes.Equal(have, content) {
			return fault.New(fault.Conflict, "export.name_taken", "taken; choose another")
		}
		e.exports[name] = bytes.Clone(content)
		return nil
	})
}

func (e exportStore) Get(_ context.Context, name string) ([]byte, error) {
	return injectAround(e.faultInjector, "Get "+name, func() ([]byte, error) {
		defer e.lock()()
		if have, ok := e.exports[name]; ok {
			return bytes.Clone(have), nil
		}
		return nil, fault.New(fault.NotFound, "export.not_found", "no such document; list the folder")
	})
}

func (e exportStore) List(_ context.Context, prefix string) ([]string, error) {
	return injectAround(e.faultInjector, "List "+prefix, func() ([]string, error) {
		defer e.lock()()
		var out []string
		for name := range e.exports {
			if strings.HasPrefix(name, prefix) {
				out = append(out, name)
			}
		}
		sort.Strings(out)
		return out, nil
	})
}

func (e exportStore) Delete(_ context.Context, name string) error {
	return inject(e.faultInjector, "Delete "+name, func() error {
		defer e.lock()()
		delete(e.exports, name)
		return nil
	})
}

// lossyExportStore changes or loses the parts of exports.
type lossyExportStore struct {
	exportStore
	change func([]byte) []byte // nil: lost
}

func (l *lossyExportStore) Get(ctx context.Context, name string) ([]byte, error) {
	content, err := l.exportStore.Get(ctx, name)
	if err != nil || !strings.Contains(name, "/part-") {
		return content, err
	}
	if l.change == nil {
		return nil, fault.New(fault.NotFound, "export.not_found", "no such document; list the folder")
	}
	return l.change(content), nil
}
