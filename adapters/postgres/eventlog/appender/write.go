package appender

import (
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/appenderdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
)

// writer turns a decided group into its insert statements. Its columns are used
// again for every group. eventlog.EnvelopeColumns declares the columns of events; those of the
// other rows have the order of the parameters in sql/backbone/queries/appender/writes.sql. The
// conformance suite reads every field back.
type writer struct {
	locked     *pg.Column
	statements []statement

	events, payloads, keys, streams, business, idempotency, series, intents *rowSet
	changedStreams, eventSubjects, intentSubjects                           *rowSet
}

// statement is one insert and how many rows it must write. With anyRows it may write fewer,
// because it skips rows that exist.
type statement struct {
	name string
	sql  string
	args []any
	rows int
}

const anyRows = -1

// rowSet is the parameters of one insert, which takes an array for each column. Its rows are
// added column by column, in the order of the statement's parameters.
type rowSet struct {
	name    string
	sql     string
	columns []*pg.Column
	args    []any
	rows    int
	column  int // of the row that is being added: the one that next returns
}

func (r *rowSet) addRow() *rowSet {
	r.rows++
	r.column = 0
	return r
}

func (r *rowSet) next() *pg.Column {
	c := r.columns[r.column]
	r.column++
	return c
}

const (
	i2    = pgtype.Int2OID
	i4    = pgtype.Int4OID
	i8    = pgtype.Int8OID
	txt   = pgtype.TextOID
	uid   = pgtype.UUIDOID
	bin   = pgtype.ByteaOID
	stamp = pgtype.TimestamptzOID
	day   = pgtype.DateOID
)

func newRowSet(name, sql string, locked *pg.Column, elements ...uint32) *rowSet {
	r := &rowSet{name: name, sql: sql}
	for _, e := range elements {
		c := pg.NewColumn(e)
		r.columns = append(r.columns, c)
		r.args = append(r.args, c)
	}
	r.args = append(r.args, locked)
	return r
}

func (r *rowSet) reset() {
	r.rows = 0
	for _, c := range r.columns {
		c.Reset()
	}
}

func newWriter() *writer {
	locked := pg.NewColumn(i4)
	w := &writer{
		locked:      locked,
		events:      newRowSet("events", eventlog.InsertEvents, locked, envelopeElements()...),
		payloads:    newRowSet("event_payloads", appenderdb.InsertEventPayloads, locked, i4, i8, bin, txt),
		keys:        newRowSet("event_keys", appenderdb.InsertEventKeys, locked, i4, txt, i8, i4),
		streams:     newRowSet("stream_versions", appenderdb.UpsertStreamVersions, locked, i4, txt, txt, i8, i8, i8),
		business:    newRowSet("business_keys", appenderdb.InsertBusinessKeys, locked, i4, txt, txt, i8, uid, txt),
		idempotency: newRowSet("idempotency_keys", appenderdb.InsertIdempotencyKeys, locked, i4, txt, bin, uid, i8, i4, stamp),
		series:      newRowSet("number_series", appenderdb.UpsertNumberSeries, locked, i4, txt, i8),
		intents: newRowSet("intents", appenderdb.UpsertIntents, locked,
			i4, uid, txt, txt, txt, // partition .. payload
			txt, txt, txt, txt, txt, txt, // actor, person, roles
			day, txt, uid, txt, txt, txt, // effective date .. source
			txt, txt, txt, txt, txt, txt, // status .. refusal
			i8, i4, i8, i4, stamp, stamp,
			txt, i4), // documents, partition of the cause
		changedStreams: newRowSet("stream_versions", appenderdb.ChangeStreams, locked, i4, txt, txt, i8, i8, i8, txt, i8, txt, i8),
		eventSubjects:  newRowSet("event_pii_subjects", appenderdb.InsertEventPIISubjects, locked, i4, txt, i8, i2, txt),
		intentSubjects: newRowSet("intent_pii_subjects", appenderdb.InsertIntentPIISubjects, locked, i4, txt, uid, i2, txt),
	}
	return w
}

// envelopeElements are the types of the parameters of eventlog.InsertEvents.
func envelopeElements() []uint32 {
	elements := make([]uint32, len(eventlog.EnvelopeColumns))
	for i := range eventlog.EnvelopeColumns {
		elements[i] = eventlog.EnvelopeColumns[i].Element
	}
	return elements
}

// fill builds the statements of a decided group.
func (w *writer) fill(g *group, ws []*queuedRequest) []statement {
	sets := [...]*rowSet{
		w.events, w.payloads, w.keys, w.streams, w.changedStreams, w.business, w.idempotency, w.series, w.intents, w.eventSubjects, w.intentSubjects,
	}
	for _, s := range sets {
		s.reset()
	}
	w.locked.Reset()
	for _, p := range g.partitions {
		w.locked.Int4(int32(p))
	}
	for i := range g.events {
		w.addEvent(&g.events[i])
	}
	for k, s := range g.overlay.streams {
		w.addStream(k, s)
	}
	for k, n := range g.overlay.series {
		row := w.series.addRow()
		row.next().Int4(int32(k.partition))
		row.next().Text(k.text)
		row.next().Int8(int64(n))
	}
	for i := range ws {
		if g.verdicts[i].writes {
			w.addSideRows(ws[i], &g.verdicts[i])
		}
	}
	w.statements = w.statements[:0]
	for _, s := range sets {
		if s.rows == 0 {
			continue
		}
		args, rows := s.args, s.rows
		switch s {
		case w.idempotency:
			args = append(args[:len(args):len(args)], g.decidedAt)
		case w.intentSubjects:
			rows = anyRows
		}
		w.statements = append(w.statements, statement{s.name, s.sql, args, rows})
	}
	return w.statements
}

func (w *writer) addEvent(e *event.Prepared) {
	for i, c := range w.events.columns {
		eventlog.EnvelopeColumns[i].Write(c, &e.Skeleton)
	}
	w.events.rows++

	row := w.payloads.addRow()
	row.next().Int4(int32(e.Partition))
	row.next().Int8(int64(e.Sequence))
	row.next().Bytes(e.Salt[:])
	row.next().Bytes(e.Payload)

	for i, key := range e.Keys {
		if slices.Contains(e.Keys[:i], key) {
			continue // two references to one entity in different roles are one row
		}
		row := w.keys.addRow()
		row.next().Int4(int32(e.Partition))
		row.next().Text(key)
		row.next().Int8(int64(e.Sequence))
		row.next().Int4(e.TypeNumber)
	}

	for _, b := range e.BusinessKeys {
		row := w.business.addRow()
		row.next().Int4(int32(e.Partition))
		row.next().Text(b.EventType)
		row.next().Text(b.Key)
		row.next().Int8(int64(e.Sequence))
		row.next().Bytes(e.ID[:])
		row.next().Optional(b.Document)
	}

	for i := range e.Sealed {
		s := &e.Sealed[i]
		row := w.eventSubjects.addRow()
		row.next().Int4(int32(e.Partition))
		row.next().Text(s.Subject)
		row.next().Int8(int64(e.Sequence))
		row.next().Int2(int16(s.KeyClass))
		row.next().Texts(s.Pointers)
	}
}

// sealed reports whether an event or intent of the group holds values sealed with a person's
// key.
func (w *writer) sealed() bool { return w.eventSubjects.rows > 0 || w.intentSubjects.rows > 0 }

func (w *writer) addStream(k streamKey, s streamRow) {
	set := w.streams
	if s.change != nil {
		set = w.changedStreams
	}
	row := set.addRow()
	row.next().Int4(int32(k.partition))
	row.next().Text(k.stream.Type)
	row.next().Text(k.stream.ID)
	row.next().Int8(int64(s.version))
	row.next().Int8(int64(s.first))
	row.next().Int8(int64(s.last))
	if s.change != nil {
		s.change.fill(row, s.state)
	}
}

func (w *writer) addSideRows(r *queuedRequest, v *verdict) {
	if claim := r.request.Idempotency; claim != nil {
		row := w.idempotency.addRow()
		row.next().Int4(int32(r.request.Partition))
		row.next().Text(claim.Key)
		kept := claim.StoredHash()
		row.next().Bytes(kept[:])
		row.next().ID(v.outcome.IntentID)
		row.next().Int8(int64(v.outcome.FirstSequence))
		row.next().Int4(int32(v.outcome.EventCount))
		row.next().Time(claim.ExpiresAt)
	}
	if r.request.Intent != nil {
		w.addIntent(r, v)
	}
}

func (w *writer) addIntent(r *queuedRequest, v *verdict) {
	in, encoded := &r.request.Intent.Intent, r.intent
	first, count, last := in.FirstSequence, in.EventCount, event.Sequence(0)
	if v.count > 0 {
		last = v.outcome.FirstSequence + event.Sequence(v.count) - 1
	}
	if made := v.count - r.request.Intent.EventsAbout; made > 0 {
		first, count = v.outcome.FirstSequence, made
	}
	row := w.intents.addRow()
	row.next().Int4(int32(r.request.Partition))
	row.next().Bytes(in.ID[:])
	row.next().Text(in.LegalEntity)
	row.next().Text(in.Type)
	row.next().JSON(encoded.payload)
	row.next().Text(string(in.Actor.Type))
	row.next().Text(in.Actor.ID)
	row.next().Optional(in.Actor.Name)
	row.next().JSON(encoded.actorDetails)
	row.next().Optional(in.PersonID)
	row.next().List(in.Roles)
	if in.HasEffectiveDate {
		row.next().Date(in.EffectiveDate)
	} else {
		row.next().Null()
	}
	row.next().Optional(in.CorrelationID)
	row.next().ID(in.CausedBy)
	row.next().Optional(in.Source.System)
	row.next().Optional(in.Source.Channel)
	row.next().Optional(in.Source.Reference)
	row.next().Text(string(in.Status))
	row.next().Optional(in.PlanHash)
	row.next().JSON(encoded.need)
	row.next().JSON(encoded.approvals)
	row.next().JSON(encoded.rules)
	row.next().JSON(encoded.refusal)
	row.next().Int8(int64(first))
	row.next().Int4(int32(count))
	row.next().Int8(int64(last))
	row.next().Int4(int32(r.request.Intent.ExpectedRevision + 1))
	row.next().Time(in.CreatedAt)
	row.next().Time(in.UpdatedAt)
	row.next().List(in.Documents)
	row.next().OptionalInt4(int32(in.CausedByPartition))

	for i := range r.request.Intent.Sealed {
		s := &r.request.Intent.Sealed[i]
		row := w.intentSubjects.addRow()
		row.next().Int4(int32(r.request.Partition))
		row.next().Text(s.Subject)
		row.next().Bytes(in.ID[:])
		row.next().Int2(int16(s.KeyClass))
		row.next().Texts(s.Pointers)
	}
}
