package keyrotation_test

import (
	"bytes"
	"context"
	"sort"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// exports is the rig's export store.
type exports struct{ *rig }

func (e exports) PutIfAbsent(_ context.Context, name string, content []byte) error {
	return run(e.trap, "PutIfAbsent "+name, func() error {
		defer e.lock()()
		if have, taken := e.exports[name]; taken && !bytes.Equal(have, content) {
			return fault.New(fault.Conflict, "export.name_taken", "taken; choose another")
		}
		e.exports[name] = bytes.Clone(content)
		return nil
	})
}

func (e exports) Get(_ context.Context, name string) ([]byte, error) {
	return call(e.trap, "Get "+name, func() ([]byte, error) {
		defer e.lock()()
		if have, ok := e.exports[name]; ok {
			return bytes.Clone(have), nil
		}
		return nil, fault.New(fault.NotFound, "export.not_found", "not there; look at the folder")
	})
}

func (e exports) List(_ context.Context, prefix string) ([]string, error) {
	return call(e.trap, "List "+prefix, func() ([]string, error) {
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

func (e exports) Delete(_ context.Context, name string) error {
	return run(e.trap, "Delete "+name, func() error {
		defer e.lock()()
		delete(e.exports, name)
		return nil
	})
}

// losing is an export store that does not keep what it was given.
type losing struct {
	exports
	change func([]byte) []byte // nil: lost
}

func (l *losing) Get(ctx context.Context, name string) ([]byte, error) {
	content, err := l.exports.Get(ctx, name)
	if err != nil || !strings.Contains(name, "/part-") {
		return content, err
	}
	if l.change == nil {
		return nil, fault.New(fault.NotFound, "export.not_found", "not there; look at the folder")
	}
	return l.change(content), nil
}
