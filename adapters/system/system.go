package system

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Clock implements ports.Clock with the machine's clock. The zero value is ready
// to use.
type Clock struct{}

var _ ports.Clock = Clock{}

// Now is the current time in UTC, in whole microseconds (the precision of stored
// times), without a monotonic reading.
func (Clock) Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// IDs implements ports.IDSource. Make one per process with NewIDs; it is safe for
// concurrent use.
//
// An id is a ULID: 48 bits of milliseconds and 80 bits from the system's secure
// random source. Within one millisecond, and when the given time lies before that
// of the last id, the last id plus a random step of at most 2^32 follows, so ids
// strictly increase.
type IDs struct {
	mu      sync.Mutex
	pool    pool
	last    uint64 // milliseconds of the last id
	entropy uint80

	saltMu sync.Mutex
	salts  pool
}

var _ ports.IDSource = (*IDs)(nil)

// NewIDs makes a source.
func NewIDs() *IDs { return &IDs{} }

// uint80 is the random part of a ULID.
type uint80 struct {
	high uint16
	low  uint64
}

// NewID makes the id of something that happens at the given time. Times outside
// 1970 to 10889 are clamped to that range.
func (s *IDs) NewID(at time.Time) event.ID {
	var ms uint64
	if m := at.UnixMilli(); m > 0 {
		ms = min(uint64(m), ulid.MaxTime())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ms > s.last || s.last == 0 && s.entropy == (uint80{}) {
		s.last = ms
		b := s.pool.take(10)
		// The top bit stays free so that a millisecond never runs out of steps.
		s.entropy = uint80{binary.BigEndian.Uint16(b) &^ (1 << 15), binary.BigEndian.Uint64(b[2:])}
	} else {
		step := uint64(binary.BigEndian.Uint32(s.pool.take(4))) + 1
		low, carry := bits.Add64(s.entropy.low, step, 0)
		s.entropy.low = low
		if s.entropy.high += uint16(carry); carry == 1 && s.entropy.high == 0 {
			s.last++ // 2^79 steps later; the order holds all the same
		}
	}
	var id event.ID
	ms = s.last
	id[0], id[1], id[2] = byte(ms>>40), byte(ms>>32), byte(ms>>24)
	id[3], id[4], id[5] = byte(ms>>16), byte(ms>>8), byte(ms)
	binary.BigEndian.PutUint16(id[6:], s.entropy.high)
	binary.BigEndian.PutUint64(id[8:], s.entropy.low)
	return id
}

// NewSalt makes 16 random bytes.
func (s *IDs) NewSalt() (salt event.Salt) {
	s.saltMu.Lock()
	defer s.saltMu.Unlock()
	copy(salt[:], s.salts.take(len(salt)))
	return salt
}

// pool reads randomness ahead, because one system call for a few bytes costs more
// than all the rest.
type pool struct {
	buffer [4096]byte
	left   int
}

// take gives n fresh bytes, valid until the next call. It clears returned bytes
// from the pool at the next call.
func (p *pool) take(n int) []byte {
	if p.left < n {
		// crypto/rand.Read ends the process rather than return anything weak.
		_, _ = rand.Read(p.buffer[:])
		p.left = len(p.buffer)
	}
	p.left -= n
	used := p.buffer[p.left+n:]
	clear(used[:min(len(used), 16)])
	return p.buffer[p.left : p.left+n]
}
