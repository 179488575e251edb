package appender

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/appenderdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// lookup holds the rows of one kind that a group has read under its head locks. Callers want
// keys; the group then reads the rows of all wanted keys in one statement. Each key is read once; a
// key without a row has the zero value.
type lookup[K comparable, V any] struct {
	sql     string
	rows    map[K]V
	unread  []K // wanted, and not read yet
	columns []*pg.Column
	encode  func(columns []*pg.Column, k K)
	scan    func(rows pgx.Rows, ordinal *int32, v *V) error
}

// anyLookup is a lookup with any types of key and row.
type anyLookup interface {
	reset()
	pending() bool
	queue(*pgx.Batch)
	read(pgx.BatchResults) error
}

func newLookup[K comparable, V any](sql string, elements []uint32, encode func([]*pg.Column, K), scan func(pgx.Rows, *int32, *V) error) *lookup[K, V] {
	l := &lookup[K, V]{sql: sql, rows: map[K]V{}, encode: encode, scan: scan}
	for _, e := range append([]uint32{pgtype.Int4OID}, elements...) {
		l.columns = append(l.columns, pg.NewColumn(e))
	}
	return l
}

func (l *lookup[K, V]) reset() {
	clear(l.rows)
	l.unread = l.unread[:0]
}

// want adds a key to the next query, unless it was read before.
func (l *lookup[K, V]) want(k K) {
	if _, known := l.rows[k]; !known {
		var zero V
		l.rows[k] = zero
		l.unread = append(l.unread, k)
	}
}

// getOrWant returns the row of a key. For a key that was not wanted before it returns the zero value
// and wants the key; pending then tells the group to read it and to decide again.
func (l *lookup[K, V]) getOrWant(k K) V {
	v, known := l.rows[k]
	if !known {
		l.want(k)
	}
	return v
}

func (l *lookup[K, V]) pending() bool { return len(l.unread) > 0 }

func (l *lookup[K, V]) queue(b *pgx.Batch) {
	for _, c := range l.columns {
		c.Reset()
	}
	for i, k := range l.unread {
		l.columns[0].Int4(int32(i))
		l.encode(l.columns[1:], k)
	}
	args := make([]any, 0, len(l.columns))
	for _, c := range l.columns {
		args = append(args, c)
	}
	b.Queue(l.sql, args...)
}

func (l *lookup[K, V]) read(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	for rows.Next() {
		var ordinal int32
		var v V
		if err := l.scan(rows, &ordinal, &v); err != nil {
			rows.Close()
			return err
		}
		l.rows[l.unread[ordinal]] = v
	}
	rows.Close()
	l.unread = l.unread[:0]
	return rows.Err()
}

// The keys of rows. Each begins with the partition.
type (
	streamKey struct {
		partition event.PartitionID
		stream    event.StreamID
	}
	textKey struct {
		partition event.PartitionID
		text      string
	}
	businessKey struct {
		partition event.PartitionID
		eventType string
		key       string
	}
	idKey struct {
		partition event.PartitionID
		id        event.ID
	}
	sequenceKey struct {
		partition event.PartitionID
		sequence  event.Sequence
	}
	keyCondition struct {
		partition event.PartitionID
		after     event.Sequence
		key       string
		others    string // array literal
		types     string // array literal
	}
	typeCondition struct {
		partition event.PartitionID
		after     event.Sequence
		eventType string
	}
)

// The rows.
type (
	streamRow struct {
		version  event.Version
		content  event.Version // all events after it are changes of metadata
		last     event.Sequence
		state    event.StreamState
		access   string // access list, JSON; "": none
		changed  bool   // the group changes its state or metadata; the state follows from the events
		settings []byte // the new metadata, as far as the log obeys them
	}
	idempotencyRow struct {
		outcome   ports.IdempotencyOutcome
		expiresAt time.Time // zero: no row
	}
	businessRow struct {
		sequence event.Sequence // 0: free
		id       event.ID
		document string
	}
	conditionRow struct {
		sequence event.Sequence // of the first match; 0: none
		scanned  int64          // index entries up to this one; over MaxConditionScan: the scan gave up here, and there is no match
	}
)

// facts are all lookups of a group: the committed rows that its requests are decided against.
type facts struct {
	streams         *lookup[streamKey, streamRow]
	idempotency     *lookup[textKey, idempotencyRow]
	business        *lookup[businessKey, businessRow]
	entities        *lookup[textKey, event.Sequence]
	keyConditions   *lookup[keyCondition, conditionRow]
	typeConditions  *lookup[typeCondition, event.Sequence]
	series          *lookup[textKey, uint64]
	intents         *lookup[idKey, int]            // revisions
	ids             *lookup[sequenceKey, event.ID] // of the events that a refusal names
	sequences       *lookup[idKey, event.Sequence] // of a group's event, to find out whether it was committed
	leases          *lookup[keyVersion, bool]
	keyStates       *lookup[subjectKey, shredding.KeyState]
	logLookups      []anyLookup // read on the group's own connection
	keyStoreLookups []anyLookup // read on the lease's connection; none unless the key store is another database
}

func newFacts(externalKeyStore bool) *facts {
	const i2, i4, i8, text, uuid = pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.TextOID, pgtype.UUIDOID
	f := &facts{
		streams: newLookup(appenderdb.ListStreamVersions, []uint32{i4, text, text},
			func(c []*pg.Column, k streamKey) {
				c[0].Int4(int32(k.partition))
				c[1].Text(k.stream.Type)
				c[2].Text(k.stream.ID)
			},
			func(r pgx.Rows, n *int32, v *streamRow) error {
				var lifecycle, access pgtype.Text
				err := r.Scan(n, (*uint64)(&v.version), (*uint64)(&v.content), (*uint64)(&v.last), &lifecycle, &access)
				v.state, v.access = event.ParseStreamState(lifecycle.String), access.String
				return err
			}),
		idempotency: newLookup(appenderdb.ListIdempotencyKeys, []uint32{i4, text}, encodeText, scanIdempotency),
		business: newLookup(appenderdb.ListBusinessKeys, []uint32{i4, text, text},
			func(c []*pg.Column, k businessKey) {
				c[0].Int4(int32(k.partition))
				c[1].Text(k.eventType)
				c[2].Text(k.key)
			},
			func(r pgx.Rows, n *int32, v *businessRow) error {
				var id pgtype.UUID
				var document pgtype.Text
				err := r.Scan(n, (*uint64)(&v.sequence), &id, &document)
				v.id, v.document = id.Bytes, document.String
				return err
			}),
		entities: newLookup(appenderdb.ListKeyVersions, []uint32{i4, text}, encodeText, scanSequence[event.Sequence]),
		keyConditions: newLookup(appenderdb.ListKeyConditionHits, []uint32{i4, i8, text, text, text},
			func(c []*pg.Column, k keyCondition) {
				c[0].Int4(int32(k.partition))
				c[1].Int8(int64(k.after))
				c[2].Text(k.key)
				c[3].Text(k.others)
				c[4].Text(k.types)
			},
			func(r pgx.Rows, n *int32, v *conditionRow) error {
				return r.Scan(n, (*uint64)(&v.sequence), &v.scanned)
			}),
		typeConditions: newLookup(appenderdb.ListTypeConditionHits, []uint32{i4, i8, text},
			func(c []*pg.Column, k typeCondition) {
				c[0].Int4(int32(k.partition))
				c[1].Int8(int64(k.after))
				c[2].Text(k.eventType)
			}, scanSequence[event.Sequence]),
		series: newLookup(appenderdb.ListNumberSeries, []uint32{i4, text}, encodeText,
			func(r pgx.Rows, n *int32, v *uint64) error { return r.Scan(n, v) }),
		intents: newLookup(appenderdb.ListIntentRevisions, []uint32{i4, uuid}, encodeID,
			func(r pgx.Rows, n *int32, v *int) error { return r.Scan(n, v) }),
		ids: newLookup(appenderdb.ListEventIDs, []uint32{i4, i8},
			func(c []*pg.Column, k sequenceKey) {
				c[0].Int4(int32(k.partition))
				c[1].Int8(int64(k.sequence))
			},
			func(r pgx.Rows, n *int32, v *event.ID) error {
				var id pgtype.UUID
				err := r.Scan(n, &id)
				*v = id.Bytes
				return err
			}),
		sequences: newLookup(appenderdb.ListEventSequences, []uint32{i4, uuid}, encodeID, scanSequence[event.Sequence]),
		leases:    newLookup(leaseKeys, []uint32{i4, text, i2, i4}, encodeKeyVersion, scanLease),
		keyStates: newLookup(readKeyStates, []uint32{i4, text, i2}, encodeSubjectKey, scanKeyState),
	}
	f.logLookups = []anyLookup{f.streams, f.idempotency, f.business, f.entities, f.keyConditions, f.typeConditions, f.series, f.intents, f.ids, f.sequences}
	f.keyStoreLookups = []anyLookup{f.leases, f.keyStates}
	if !externalKeyStore {
		f.logLookups, f.keyStoreLookups = append(f.logLookups, f.keyStoreLookups...), nil
	}
	return f
}

func encodeText(c []*pg.Column, k textKey) {
	c[0].Int4(int32(k.partition))
	c[1].Text(k.text)
}

func encodeID(c []*pg.Column, k idKey) {
	c[0].Int4(int32(k.partition))
	c[1].Bytes(k.id[:])
}

func scanSequence[V ~uint64](r pgx.Rows, n *int32, v *V) error {
	var sequence uint64
	err := r.Scan(n, &sequence)
	*v = V(sequence)
	return err
}

func scanIdempotency(r pgx.Rows, n *int32, v *idempotencyRow) error {
	var storedHash []byte
	var intentID pgtype.UUID
	o := &v.outcome
	err := r.Scan(n, &storedHash, &intentID, (*uint64)(&o.FirstSequence), &o.EventCount, &v.expiresAt)
	copy(o.StoredHash[:], storedHash)
	o.IntentID = intentID.Bytes
	return err
}

func (f *facts) reset() {
	for _, l := range f.logLookups {
		l.reset()
	}
	f.forgetSubjectKeys()
}

// forgetSubjectKeys drops the rows of a key store in another database.
func (f *facts) forgetSubjectKeys() {
	for _, l := range f.keyStoreLookups {
		l.reset()
	}
}

// queuePending adds a statement for every lookup with unread keys and returns these
// lookups in order.
func queuePending(b *pgx.Batch, lookups, into []anyLookup) []anyLookup {
	for _, l := range lookups {
		if l.pending() {
			l.queue(b)
			into = append(into, l)
		}
	}
	return into
}

func isPending(l anyLookup) bool { return l.pending() }

func (f *facts) pending() bool {
	return slices.ContainsFunc(f.logLookups, isPending) || slices.ContainsFunc(f.keyStoreLookups, isPending)
}
