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
// again for every group. Envelopes are written as eventlog.EnvelopeColumns declares; for the
// side rows the order of columns is the order of the parameters in
// sql/backbone/queries/appender/writes.sql. The conformance suite reads every field back.
type writer struct {
	locked     *pg.Column
	statements []statement

	events, payloads, keys, streams, business, idempotency, series, intents *rowSet
	changedStreams, eventSubjects, intentSubjects                           *rowSet
}

// statement is one insert and how many rows it must write; anyRows: it leaves out
// what is there.
type statement struct {
	name string
	sql  string
	args []any
	rows int
}

const anyRows = -1

// rowSet is the parameters of one insert.
type rowSet struct {
	name    string
	sql     string
	columns []*pg.Column
	args    []any
	rows    int
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
			i8, i4, i4, stamp, stamp),
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
		c := w.series.columns
		c[0].Int4(int32(k.partition))
		c[1].Text(k.text)
		c[2].Int8(int64(n))
		w.series.rows++
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

	c := w.payloads.columns
	c[0].Int4(int32(e.Partition))
	c[1].Int8(int64(e.Sequence))
	c[2].Bytes(e.Salt[:])
	c[3].Bytes(e.Payload)
	w.payloads.rows++

	c = w.keys.columns
	for i, key := range e.Keys {
		if slices.Contains(e.Keys[:i], key) {
			continue // two references to one entity in different roles are one row
		}
		c[0].Int4(int32(e.Partition))
		c[1].Text(key)
		c[2].Int8(int64(e.Sequence))
		c[3].Int4(e.TypeNumber)
		w.keys.rows++
	}

	c = w.business.columns
	for _, b := range e.BusinessKeys {
		c[0].Int4(int32(e.Partition))
		c[1].Text(b.EventType)
		c[2].Text(b.Key)
		c[3].Int8(int64(e.Sequence))
		c[4].Bytes(e.ID[:])
		c[5].Optional(b.Document)
		w.business.rows++
	}

	c = w.eventSubjects.columns
	for i := range e.Sealed {
		s := &e.Sealed[i]
		c[0].Int4(int32(e.Partition))
		c[1].Text(s.Subject)
		c[2].Int8(int64(e.Sequence))
		c[3].Int2(int16(s.KeyClass))
		c[4].Texts(s.Pointers)
		w.eventSubjects.rows++
	}
}

// sealed reports whether what was filled holds values under a person's key.
func (w *writer) sealed() bool { return w.eventSubjects.rows > 0 || w.intentSubjects.rows > 0 }

func (w *writer) addStream(k streamKey, s streamRow) {
	set := w.streams
	if s.change != nil {
		set = w.changedStreams
	}
	c := set.columns
	c[0].Int4(int32(k.partition))
	c[1].Text(k.stream.Type)
	c[2].Text(k.stream.ID)
	c[3].Int8(int64(s.version))
	c[4].Int8(int64(s.first))
	c[5].Int8(int64(s.last))
	if s.change != nil {
		s.change.fill(c[6:], s.state)
	}
	set.rows++
}

func (w *writer) addSideRows(r *queuedRequest, v *verdict) {
	if claim := r.request.Idempotency; claim != nil {
		c := w.idempotency.columns
		c[0].Int4(int32(r.request.Partition))
		c[1].Text(claim.Key)
		kept := claim.StoredHash()
		c[2].Bytes(kept[:])
		c[3].ID(v.outcome.IntentID)
		c[4].Int8(int64(v.outcome.FirstSequence))
		c[5].Int4(int32(v.outcome.EventCount))
		c[6].Time(claim.ExpiresAt)
		w.idempotency.rows++
	}
	if r.request.Intent != nil {
		w.addIntent(r, v)
	}
}

func (w *writer) addIntent(r *queuedRequest, v *verdict) {
	in, encoded := &r.request.Intent.Intent, r.intent
	first, count := in.FirstSequence, in.EventCount
	if v.count > 0 {
		first, count = v.outcome.FirstSequence, v.count
	}
	c := w.intents.columns
	c[0].Int4(int32(r.request.Partition))
	c[1].Bytes(in.ID[:])
	c[2].Text(in.LegalEntity)
	c[3].Text(in.Type)
	c[4].JSON(encoded.payload)
	c[5].Text(string(in.Actor.Type))
	c[6].Text(in.Actor.ID)
	c[7].Optional(in.Actor.Name)
	c[8].JSON(encoded.actorDetails)
	c[9].Optional(in.PersonID)
	c[10].List(in.Roles)
	if in.HasEffective {
		c[11].Date(in.EffectiveDate)
	} else {
		c[11].Null()
	}
	c[12].Optional(in.CorrelationID)
	c[13].ID(in.CausedBy)
	c[14].Optional(in.Source.System)
	c[15].Optional(in.Source.Channel)
	c[16].Optional(in.Source.Reference)
	c[17].Text(string(in.Status))
	c[18].Optional(in.PlanHash)
	c[19].JSON(encoded.need)
	c[20].JSON(encoded.approvals)
	c[21].JSON(encoded.rules)
	c[22].JSON(encoded.refusal)
	c[23].Int8(int64(first))
	c[24].Int4(int32(count))
	c[25].Int4(int32(r.request.Intent.ExpectedRevision + 1))
	c[26].Time(in.CreatedAt)
	c[27].Time(in.UpdatedAt)
	w.intents.rows++

	c = w.intentSubjects.columns
	for i := range r.request.Intent.Sealed {
		s := &r.request.Intent.Sealed[i]
		c[0].Int4(int32(r.request.Partition))
		c[1].Text(s.Subject)
		c[2].Bytes(in.ID[:])
		c[3].Int2(int16(s.KeyClass))
		c[4].Texts(s.Pointers)
		w.intentSubjects.rows++
	}
}
