package memory

import (
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Tx is the transaction a projection writes its read model in. A read model is a
// named table of values by text key. Writes are staged: the transaction reads them at once,
// other readers after the batch and its checkpoint are committed. When the handler fails they
// are dropped. Values are stored as given, so store values, or pointers whose targets never
// change. A Tx belongs to one goroutine and ends with the handler's call.
type Tx struct {
	state  *state
	writes map[string]map[string]write
	last   []func()
	closed bool
}

type write struct {
	value   any
	deleted bool
}

// Row is one entry of a read model.
type Row struct {
	Key   string
	Value any
}

func newTx(s *state) *Tx { return &Tx{state: s, writes: map[string]map[string]write{}} }

// Bind gives the transaction behind the port's type. Fault internal if it
// belongs to another adapter.
func Bind(tx ports.ProjectionTx) (*Tx, error) {
	t, ok := tx.(*Tx)
	if !ok || t.closed {
		return nil, fault.New(fault.Internal, "internal", "the projection's transaction is not a running one of the memory store; wire both to the same store")
	}
	return t, nil
}

// Put writes a row, replacing an earlier one.
func (tx *Tx) Put(table, key string, value any) { tx.stage(table, key, write{value: value}) }

// Delete removes a row; a missing one is no error.
func (tx *Tx) Delete(table, key string) { tx.stage(table, key, write{deleted: true}) }

func (tx *Tx) stage(table, key string, w write) {
	if tx.closed {
		panic("memory: write to a read model after its transaction ended")
	}
	t := tx.writes[table]
	if t == nil {
		t = map[string]write{}
		tx.writes[table] = t
	}
	t[key] = w
}

// Get reads a row, the transaction's own writes included.
func (tx *Tx) Get(table, key string) (any, bool) {
	if w, staged := tx.writes[table][key]; staged {
		return w.value, !w.deleted
	}
	return (&ReadModels{tx.state}).Row(table, key)
}

// Rows lists the rows whose keys begin with the prefix, by key, the
// transaction's own writes included.
func (tx *Tx) Rows(table, prefix string) []Row {
	tx.state.mu.Lock()
	merged := maps.Clone(tx.state.tables[table])
	tx.state.mu.Unlock()
	if merged == nil {
		merged = map[string]any{}
	}
	apply(merged, tx.writes[table])
	return rows(merged, prefix)
}

// atEnd adds a function that runs when the writes are applied, with the lock held.
func (tx *Tx) atEnd(f func()) { tx.last = append(tx.last, f) }

// commit applies the writes; the caller holds the lock.
func (tx *Tx) commit() {
	for name, writes := range tx.writes {
		table := tx.state.tables[name]
		if table == nil {
			table = map[string]any{}
			tx.state.tables[name] = table
		}
		apply(table, writes)
	}
	for _, f := range tx.last {
		f()
	}
	tx.close()
}

func (tx *Tx) close() { tx.closed = true }

func apply(table map[string]any, writes map[string]write) {
	for key, w := range writes {
		if w.deleted {
			delete(table, key)
		} else {
			table[key] = w.value
		}
	}
}

func rows(table map[string]any, prefix string) []Row {
	out := []Row{}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if strings.HasPrefix(key, prefix) {
			out = append(out, Row{Key: key, Value: table[key]})
		}
	}
	return out
}

// ReadModels reads the committed rows that handlers wrote through a Tx.
type ReadModels struct{ *state }

// Row reads a committed row of a read model.
func (s *ReadModels) Row(table, key string) (any, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.tables[table][key]
	return v, ok
}

// Rows lists the committed rows of a read model whose keys begin with the
// prefix, by key.
func (s *ReadModels) Rows(table, prefix string) []Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return rows(s.tables[table], prefix)
}
