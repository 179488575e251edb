// Package monitor reports the state of a database to operators: throughput, contention,
// deliveries, distribution, storage and settings. The command backbone doctor calls it.
package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/monitordb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Bounds of one query.
const (
	monitorStatementTimeout = "5s"
	monitorLockTimeout      = "1s"
)

// Monitor queries a database for operators. It has one read-only connection with short
// timeouts and needs no more rights than backbone_app has. Its reports name no person, no
// document and no payload, and their cost does not depend on the number of events.
type Monitor struct {
	conn    *pgx.Conn
	queries *monitordb.Queries
	hasLog  bool
}

// Open connects to a log's database or to that of a key store. Faults:
// store.dsn_invalid, store.unavailable.
func Open(ctx context.Context, dsn string) (*Monitor, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, pg.InvalidDSN("the database address")
	}
	for name, value := range map[string]string{
		"statement_timeout": monitorStatementTimeout, "lock_timeout": monitorLockTimeout,
		"default_transaction_read_only": "on", "jit": "off", "application_name": "backbone doctor",
	} {
		config.RuntimeParams[name] = value
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, pg.UnavailableFault(err)
	}
	m := &Monitor{conn: conn, queries: monitordb.New()}
	if m.hasLog, err = m.queries.HasLog(ctx, conn); err != nil {
		m.Close(ctx)
		return nil, pg.Translate(ctx, err)
	}
	return m, nil
}

// Close ends the connection.
func (m *Monitor) Close(ctx context.Context) { _ = m.conn.Close(context.WithoutCancel(ctx)) }

// HasLog reports whether the database holds a log; that of a key store holds none.
func (m *Monitor) HasLog() bool { return m.hasLog }

// monitorFault translates an error of a query; a timeout is store.question_too_slow.
func monitorFault(ctx context.Context, err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == "57014" || pgErr.Code == "55P03") {
		return fault.New(fault.Timeout, "store.question_too_slow",
			"the database did not answer within "+monitorStatementTimeout+"; it is overloaded or a table is locked, look at contention and try again")
	}
	return pg.Translate(ctx, err)
}

// entityHead is a legal entity and its head.
type entityHead struct {
	monitordb.ListLegalEntitiesRow
	head ports.Head
}

// heads lists the heads of all legal entities, or of those with the code, ordered by tenant and
// code.
func (m *Monitor) heads(ctx context.Context, tenantID, code string) ([]entityHead, error) {
	entities, err := m.queries.ListLegalEntities(ctx, m.conn, tenantID)
	if err != nil {
		return nil, monitorFault(ctx, err)
	}
	rows, err := m.queries.ListPartitionHeads(ctx, m.conn)
	if err != nil {
		return nil, monitorFault(ctx, err)
	}
	at := make(map[int32]ports.Head, len(rows))
	for i := range rows {
		r := &rows[i]
		at[r.PartitionID] = eventlog.HeadOf(r.Genesis, r.Sequence, r.RecordedAt, r.Checksum)
	}
	var out []entityHead
	for _, e := range entities {
		if code == "" || e.Code == code {
			out = append(out, entityHead{e, at[e.PartitionID]})
		}
	}
	if len(out) == 0 && (code != "" || tenantID != "") {
		return nil, fault.New(fault.NotFound, "legal_entity.not_found", "no legal entity has this code and tenant; correct them or leave them out")
	}
	return out, nil
}

// Throughput counts appended events and commits by hour.
type Throughput struct {
	From          time.Time          `json:"from"`  // begin of the first hour, UTC
	Until         time.Time          `json:"until"` // time of the query, in the last hour
	Hours         []HourOfAppends    `json:"hours"` // of all legal entities together, also those without events
	LegalEntities []EntityThroughput `json:"legal_entities"`
}

// EntityThroughput is the throughput of one legal entity that had events.
type EntityThroughput struct {
	TenantID    string          `json:"tenant"`
	LegalEntity string          `json:"legal_entity"`
	Hours       []HourOfAppends `json:"hours"`
}

// HourOfAppends counts by recorded_at. Events is exact. A commit is a transaction of
// the append engine, counted once for each legal entity in it. Several requests may share one;
// the metric backbone_append_group_size counts those. In an hour with many events, commits
// are counted in a sample from its middle and scaled.
type HourOfAppends struct {
	Hour      time.Time `json:"hour"`
	Events    int64     `json:"events"`
	Commits   int64     `json:"commits"`
	Estimated bool      `json:"commits_estimated"`
}

// ThroughputQuery selects the last hours of legal entities. Empty fields select all legal
// entities and 24 hours.
type ThroughputQuery struct {
	TenantID    string
	LegalEntity string
	Hours       int
	Now         time.Time
}

// Limits of the events that are read to count commits.
const (
	commitSample     = 500 // of an hour of a legal entity
	commitSampleFew  = 20
	commitSampleRows = 240_000 // of the whole answer
)

// Throughput counts events by the hour. recorded_at never goes backwards in a legal
// entity and sequences have no gaps, so an hour's events are the difference of two
// sequences, which bisection finds. Legal entities without events in that time cost
// one probe each. Faults: legal_entity.not_found, store.question_too_slow.
func (m *Monitor) Throughput(ctx context.Context, q ThroughputQuery) (Throughput, error) {
	count := cmp.Or(q.Hours, 24)
	last := q.Now.UTC().Truncate(time.Hour)
	out := Throughput{From: last.Add(-time.Duration(count-1) * time.Hour), Until: q.Now.UTC(), LegalEntities: []EntityThroughput{}}
	out.Hours = hoursFrom(out.From, count)
	entities, err := m.heads(ctx, q.TenantID, q.LegalEntity)
	if err != nil {
		return Throughput{}, err
	}
	entities = slices.DeleteFunc(entities, func(e entityHead) bool { return e.head.Sequence == 0 || e.head.RecordedAt.Before(out.From) })
	sample := min(commitSample, max(commitSampleFew, commitSampleRows/max(1, count*len(entities))))
	for _, e := range entities {
		hours, err := m.entityHours(ctx, e, out.From, count, int64(sample))
		if err != nil {
			return Throughput{}, err
		}
		for i, h := range hours {
			sum := &out.Hours[i]
			sum.Events, sum.Commits, sum.Estimated = sum.Events+h.Events, sum.Commits+h.Commits, sum.Estimated || h.Estimated
		}
		out.LegalEntities = append(out.LegalEntities, EntityThroughput{TenantID: e.TenantID, LegalEntity: e.Code, Hours: hours})
	}
	return out, nil
}

func hoursFrom(first time.Time, count int) []HourOfAppends {
	hours := make([]HourOfAppends, count)
	for i := range hours {
		hours[i].Hour = first.Add(time.Duration(i) * time.Hour)
	}
	return hours
}

func (m *Monitor) entityHours(ctx context.Context, e entityHead, first time.Time, count int, sample int64) ([]HourOfAppends, error) {
	hours := hoursFrom(first, count)
	instants := make([]time.Time, count)
	for i := range hours {
		instants[i] = hours[i].Hour
	}
	found, err := m.queries.ListSequencesAt(ctx, m.conn, &monitordb.ListSequencesAtParams{
		Head: int64(e.head.Sequence), Instants: instants, PartitionID: e.PartitionID,
	})
	if err != nil {
		return nil, monitorFault(ctx, err)
	}
	if len(found) != count {
		return nil, eventlog.UndecodableFault(event.ID{})
	}
	looked := monitordb.CountCommitsParams{PartitionID: e.PartitionID, PageSize: int32(sample)}
	var places []int
	for i := range hours {
		end := int64(e.head.Sequence)
		if i+1 < count {
			end = found[i+1].Sequence
		}
		n := end - found[i].Sequence
		if hours[i].Events = n; n == 0 {
			continue
		}
		hours[i].Estimated = n > sample
		after := found[i].Sequence + max(0, (n-sample)/2)
		looked.Afters, looked.Untils, places = append(looked.Afters, after), append(looked.Untils, end), append(places, i)
	}
	commits, err := m.queries.CountCommits(ctx, m.conn, &looked)
	if err != nil {
		return nil, monitorFault(ctx, err)
	}
	for k, c := range commits { // both in the order of sequences
		h := &hours[places[k]]
		h.Commits = max(1, (c.Commits*h.Events+c.Events/2)/max(1, c.Events))
	}
	return hours, nil
}

// Findings summarises the hours.
func (t Throughput) Findings() []Finding {
	var events, commits int64
	busiest := HourOfAppends{}
	for _, h := range t.Hours {
		events, commits = events+h.Events, commits+h.Commits
		if h.Events > busiest.Events {
			busiest = h
		}
	}
	detail := fmt.Sprintf("%d events in about %d commits in %d hours", events, commits, len(t.Hours))
	if events > 0 {
		detail += fmt.Sprintf("; most in the hour of %s: %d", busiest.Hour.Format("15:04 UTC"), busiest.Events)
	}
	return []Finding{{Section: "throughput", Subject: "appends", Status: FindingOK, Detail: detail}}
}
