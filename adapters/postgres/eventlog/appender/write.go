package appender

import (
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/appenderdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
)

// writer turns a decided group into its statements: the insert of the events, the call of
// backbone.write_event_rows with all rows that belong to them, and the insert of idempotency
// keys. Its columns are used again for every group. eventlog.EnvelopeColumns declares the columns
// of events; those of the other rows have the order of the parameters in
// sql/backbone/queries/appender/writes.sql. The conformance suite reads every field back.
type writer struct {
	locked     *pg.Column // partitions of the group
	rowsArgs   []any      // of appenderdb.WriteEventRows
	statements []statement

	events, appended, payloads, keys, changedStreams, business  *rowSet
	series, intents, eventSubjects, intentSubjects, idempotency *rowSet
}

// statement is one statement and how many rows it must write. With anyRows the statement
// compares the number by itself.
type statement struct {
	name string
	sql  string
	args []any
	rows int
}

const anyRows = -1

// rowSet is the rows of one table, an array for each column. Its rows are added column by
// column, in the order of the statement's parameters.
type rowSet struct {
	columns []*pg.Column
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

func newRowSet(elements ...uint32) *rowSet {
	r := &rowSet{}
	for _, e := range elements {
		r.columns = append(r.columns, pg.NewColumn(e))
	}
	return r
}

func (r *rowSet) reset() {
	r.rows = 0
	for _, c := range r.columns {
		c.Reset()
	}
}

// args are the columns as parameters.
func (r *rowSet) args() []any {
	args := make([]any, len(r.columns))
	for i, c := range r.columns {
		args[i] = c
	}
	return args
}

func newWriter() *writer {
	w := &writer{
		locked:         pg.NewColumn(i4),
		events:         newRowSet(envelopeElements()...),
		appended:       newRowSet(i4, i8, i8),
		payloads:       newRowSet(i4, i8, bin, txt),
		keys:           newRowSet(i4, txt, i8, i4),
		changedStreams: newRowSet(i4, txt, txt, txt),
		business:       newRowSet(i4, txt, txt, i8, uid, txt),
		series:         newRowSet(i4, txt, i8),
		intents: newRowSet(
			i4, uid, txt, txt, txt, // partition .. payload
			txt, txt, txt, txt, txt, txt, // actor, person, roles
			day, txt, uid, txt, txt, txt, // effective date .. source
			txt, txt, txt, txt, txt, txt, // status .. refusal
			i8, i4, i8, i4, stamp, stamp,
			txt, i4), // documents, partition of the cause
		eventSubjects:  newRowSet(i4, txt, i8, i2, txt),
		intentSubjects: newRowSet(i4, txt, uid, i2, txt),
		idempotency:    newRowSet(i4, txt, bin, uid, i8, i4, stamp),
	}
	for _, s := range w.rowsOfEvents() {
		w.rowsArgs = append(w.rowsArgs, s.args()...)
	}
	return w
}

// rowsOfEvents are the parameters of appenderdb.WriteEventRows.
func (w *writer) rowsOfEvents() [9]*rowSet {
	return [...]*rowSet{
		w.appended, w.payloads, w.keys, w.changedStreams, w.business, w.series, w.intents, w.eventSubjects, w.intentSubjects,
	}
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
	w.locked.Reset()
	w.events.reset()
	w.idempotency.reset()
	for _, s := range w.rowsOfEvents() {
		s.reset()
	}
	for _, p := range g.partitions {
		w.locked.Int4(int32(p))
		w.addAppended(p, g.heads[p])
	}
	for i := range g.events {
		w.addEvent(&g.events[i])
	}
	for k, s := range g.overlay.streams {
		if s.changed {
			row := w.changedStreams.addRow()
			row.next().Int4(int32(k.partition))
			row.next().Text(k.stream.Type)
			row.next().Text(k.stream.ID)
			row.next().JSON(s.settings)
		}
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
	if w.events.rows > 0 {
		w.statements = append(w.statements,
			statement{"events", eventlog.InsertEvents, append(w.events.args(), w.locked), w.events.rows},
			statement{"rows of events", appenderdb.WriteEventRows, w.rowsArgs, anyRows})
	}
	if w.idempotency.rows > 0 {
		w.statements = append(w.statements,
			statement{"idempotency_keys", appenderdb.InsertIdempotencyKeys, append(w.idempotency.args(), w.locked, g.decidedAt), w.idempotency.rows})
	}
	return w.statements
}

// addAppended adds the sequences of the group's events in a partition.
func (w *writer) addAppended(p event.PartitionID, h *head) {
	if h == nil || h.current.Sequence == h.stored.Sequence {
		return
	}
	row := w.appended.addRow()
	row.next().Int4(int32(p))
	row.next().Int8(int64(h.stored.Sequence + 1))
	row.next().Int8(int64(h.current.Sequence))
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
