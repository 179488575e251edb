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

// maskedText replaces a secret wherever it is printed.
const maskedText = "[SECRET]"

var errSecret = errors.New("a secret cannot be marshalled; pass on a reference to it")

// masked stores bytes so that neither printing nor marshalling shows them. A function
// returns them because fmt calls no methods of unexported fields but prints their content,
// and follows pointers when the verb does not fit; of a function it prints the address.
type masked struct{ buffer func() *buffer }

func mask(b []byte) masked {
	h := &buffer{bytes: b}
	return masked{func() *buffer { return h }}
}

type buffer struct {
	mu     sync.RWMutex
	bytes  []byte
	zeroed bool
}

// String gives [SECRET].
func (masked) String() string { return maskedText }

// GoString gives [SECRET].
func (masked) GoString() string { return maskedText }

// Format writes [SECRET] whatever the verb.
func (masked) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, maskedText) }

// LogValue gives [SECRET].
func (masked) LogValue() slog.Value { return slog.StringValue(maskedText) }

// MarshalJSON refuses.
func (masked) MarshalJSON() ([]byte, error) { return nil, errSecret }

// MarshalText refuses.
func (masked) MarshalText() ([]byte, error) { return nil, errSecret }

// MarshalBinary refuses.
func (masked) MarshalBinary() ([]byte, error) { return nil, errSecret }

// Zero overwrites the bytes and makes every later use fail. It waits for uses in flight.
// Go may have copied the bytes before, for example on a stack that grew; Zero does not reach
// such copies.
func (v masked) Zero() {
	if v.buffer == nil {
		return
	}
	h := v.buffer()
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.bytes)
	h.bytes, h.zeroed = nil, true
}

// use calls f with the bytes, which f must not keep or change.
func (v masked) use(f func([]byte) error) error {
	if v.buffer == nil {
		return evicted()
	}
	h := v.buffer()
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.zeroed {
		return evicted()
	}
	return f(h.bytes)
}

func evicted() error {
	return fault.New(fault.Unavailable, "pii.key_evicted", "the key was removed from memory; try again")
}

// Secret holds key material: it cannot be printed or marshalled. Copies of a Secret share
// their bytes, so that one Zero overwrites all of them. The zero Secret holds nothing.
type Secret struct{ masked }

// NewSecret takes ownership of the bytes: the caller must not use the slice again.
func NewSecret(b []byte) Secret { return Secret{mask(b)} }

// Use calls f with the bytes, which f must not keep or change. pii.key_evicted if the secret
// was zeroed or holds nothing.
func (s Secret) Use(f func([]byte) error) error { return s.use(f) }

// Plain holds an opened personal value, the JSON text as it was received. It cannot be
// printed or marshalled; only Reveal returns it. A Plain must not outlive the request that
// opened it.
type Plain struct{ masked }

// NewPlain takes ownership of the bytes: the caller must not use the slice again.
func NewPlain(b []byte) Plain { return Plain{mask(b)} }

// Reveal returns a copy of the JSON text, nil once the value was zeroed.
func (p Plain) Reveal() (text []byte) {
	_ = p.use(func(b []byte) error { text = bytes.Clone(b); return nil }) // on an error text stays nil
	return text
}
