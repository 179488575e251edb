package appender

import (
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// The functions of the key store, whose schema has its own migrations and may be
// another database; sqlc sees neither. keystore.lease returns the keys that are
// active in the given version and not fenced, and locks them FOR SHARE until the
// transaction ends. It skips rows that another session has locked, so an appender
// that holds head locks never waits for an eraser. keystore.key_states returns the state of
// every key and locks nothing.
const (
	leaseKeys     = `SELECT ordinal FROM keystore.lease($1::int[], $2::int[], $3::text[], $4::smallint[], $5::int[])`
	readKeyStates = `SELECT ordinal, state FROM keystore.key_states($1::int[], $2::int[], $3::text[], $4::smallint[])`
)

// subjectKey names the key of a person.
type subjectKey struct {
	partition event.PartitionID
	subject   string
	class     uint8
}

// keyVersion names the version of a key that values were sealed with.
type keyVersion struct {
	subjectKey
	version uint32
}

func keyVersionOf(p event.PartitionID, s *event.SealedSubject) keyVersion {
	return keyVersion{subjectKey{p, s.Subject, s.KeyClass}, s.KeyVersion}
}

func encodeSubjectKey(c []*pg.Column, k subjectKey) {
	c[0].Int4(int32(k.partition))
	c[1].Text(k.subject)
	c[2].Int2(int16(k.class))
}

func encodeKeyVersion(c []*pg.Column, k keyVersion) {
	encodeSubjectKey(c, k.subjectKey)
	c[3].Int4(int32(k.version))
}

// scanLease reads a leased key; for a key that is not leased there is no row.
func scanLease(r pgx.Rows, n *int32, leased *bool) error {
	*leased = true
	return r.Scan(n)
}

func scanKeyState(r pgx.Rows, n *int32, state *shredding.KeyState) error {
	var text pgtype.Text
	err := r.Scan(n, &text)
	*state = shredding.KeyState(text.String)
	return err
}

// isSealed reports whether a request holds values that are sealed with a person's
// key.
func isSealed(r *ports.AppendRequest) bool {
	if r.Intent != nil && len(r.Intent.Sealed) > 0 {
		return true
	}
	for i := range r.Events {
		if len(r.Events[i].Sealed) > 0 {
			return true
		}
	}
	return false
}

func anySealed(ws []*queuedRequest) bool {
	for _, w := range ws {
		if isSealed(w.request) {
			return true
		}
	}
	return false
}

// wantSubjectKeys wants a lease on every subject key of the request.
func (g *group) wantSubjectKeys(r *ports.AppendRequest) {
	if g.keyStoreFault != nil {
		return
	}
	for i := range r.Events {
		sealed := r.Events[i].Sealed
		for j := range sealed {
			g.facts.leases.want(keyVersionOf(r.Partition, &sealed[j]))
		}
	}
	if r.Intent != nil {
		for j := range r.Intent.Sealed {
			g.facts.leases.want(keyVersionOf(r.Partition, &r.Intent.Sealed[j]))
		}
	}
}

// checkSubjectKeys refuses a request whose subject keys are not all leased: nothing may be written
// under a key that is being destroyed.
func (g *group) checkSubjectKeys(r *ports.AppendRequest) *fault.Error {
	if g.keyStoreFault != nil {
		if isSealed(r) {
			return g.keyStoreFault
		}
		return nil
	}
	for i := range r.Events {
		sealed := r.Events[i].Sealed
		for j := range sealed {
			if f := g.checkSubjectKey(r.Partition, &sealed[j]); f != nil {
				return f.WithField("/events/" + strconv.Itoa(i) + f.Field)
			}
		}
	}
	if r.Intent != nil {
		for j := range r.Intent.Sealed {
			if f := g.checkSubjectKey(r.Partition, &r.Intent.Sealed[j]); f != nil {
				return f.WithField("/payload" + f.Field)
			}
		}
	}
	return nil
}

// checkSubjectKey refuses a key that was not leased. The state distinguishes a key that has a newer
// version or was locked for a moment, which the caller may retry, from a destroyed one.
func (g *group) checkSubjectKey(p event.PartitionID, s *event.SealedSubject) *fault.Error {
	k := keyVersionOf(p, s)
	if g.facts.leases.getOrWant(k) {
		return nil
	}
	pointer := ""
	if len(s.Pointers) > 0 {
		pointer = s.Pointers[0]
	}
	switch g.facts.keyStates.getOrWant(k.subjectKey) {
	case shredding.KeyActive:
		return keyMoved(pointer)
	default:
		return shredding.Erased(pointer)
	}
}

func keyMoved(pointer string) *fault.Error {
	return fault.New(fault.Conflict, shredding.CodeKeyMoved,
		"the key of this subject was busy or has a newer version; seal the values again and send the request again").
		WithField(pointer).WithRetryAfter(keyRetryAfter)
}

// keyRetryAfter is longer than any session but an eraser's holds the lock of a key row.
const keyRetryAfter = 20 * time.Millisecond

// errNoKeyStore says that the log's database, which should hold the key store, lacks the key
// store's functions.
var errNoKeyStore = errors.New("the key store's schema is missing")
