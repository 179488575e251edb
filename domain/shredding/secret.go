package shredding

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/erpbackbone/backbone/domain/fault"
)

// hidden is what secrets print.
const hidden = "[SECRET]"

var errSecret = errors.New("a secret cannot be marshalled; pass on a reference to it")

// veil keeps bytes where neither printing nor marshalling reaches them. They lie
// behind a function because fmt calls no methods on unexported fields but prints
// what they contain, and follows pointers when the verb does not fit; of a
// function it prints the address.
type veil struct{ held func() *held }

func cover(b []byte) veil {
	h := &held{bytes: b}
	return veil{func() *held { return h }}
}

type held struct {
	mu     sync.RWMutex
	bytes  []byte
	zeroed bool
}

// String gives [SECRET].
func (veil) String() string { return hidden }

// GoString gives [SECRET].
func (veil) GoString() string { return hidden }

// Format writes [SECRET] whatever the verb.
func (veil) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// LogValue gives [SECRET].
func (veil) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalJSON refuses.
func (veil) MarshalJSON() ([]byte, error) { return nil, errSecret }

// MarshalText refuses.
func (veil) MarshalText() ([]byte, error) { return nil, errSecret }

// MarshalBinary refuses.
func (veil) MarshalBinary() ([]byte, error) { return nil, errSecret }

// Zero overwrites the bytes and makes every later use fail. It waits for uses in
// flight. Best effort: Go may have copied the bytes before, on a stack that grew
// for example.
func (v veil) Zero() {
	if v.held == nil {
		return
	}
	h := v.held()
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.bytes)
	h.bytes, h.zeroed = nil, true
}

// use lends the bytes. They must not be kept or changed.
func (v veil) use(f func([]byte) error) error {
	if v.held == nil {
		return evicted()
	}
	h := v.held()
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.zeroed {
		return evicted()
	}
	return f(h.bytes)
}

func evicted() error {
	return fault.New(fault.Unavailable, "pii.key_evicted", "the key was taken out of memory meanwhile; try again")
}

// Secret holds key material: it cannot be printed or marshalled, and copies of a
// Secret share their bytes, so that one Zero ends them all. The zero Secret
// holds nothing.
type Secret struct{ veil }

// NewSecret takes the bytes over: the caller must not use the slice again.
func NewSecret(b []byte) Secret { return Secret{cover(b)} }

// Use lends the bytes for the time of the call; f must not keep or change them.
// pii.key_evicted if the secret was zeroed or never held anything.
func (s Secret) Use(f func([]byte) error) error { return s.use(f) }

// Plain holds an opened personal value, the JSON text as it was received. It
// cannot be printed or marshalled; Reveal is the one way out. It lives in the
// request it was opened for.
type Plain struct{ veil }

// NewPlain takes the bytes over: the caller must not use the slice again.
func NewPlain(b []byte) Plain { return Plain{cover(b)} }

// Reveal gives a copy of the JSON text, nil once the value was zeroed.
func (p Plain) Reveal() (text []byte) {
	_ = p.use(func(b []byte) error { text = bytes.Clone(b); return nil }) // nil says so
	return text
}
