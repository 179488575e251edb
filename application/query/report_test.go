package query_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// fakeProgress is a projection whose position the test sets.
type fakeProgress struct {
	mu      sync.Mutex
	reached event.Sequence
	asked   int
	step    event.Sequence // the position advances by this much with every call
	err     error
}

func (p *fakeProgress) Active(context.Context, string) (int, error) { return 7, nil }

func (p *fakeProgress) Position(context.Context, string, int, event.PartitionID) (event.Sequence, uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	defer func() { p.reached += p.step }()
	return p.reached, 0, p.err
}

// numbersSource is a read model with one row per known sequence. It records the queries.
type numbersSource struct {
	mu    sync.Mutex
	asked []ports.ReadModelQuery
	rows  int // replaces the known sequence; 0 does not
}

func (n *numbersSource) Query(_ context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	n.mu.Lock()
	n.asked = append(n.asked, q)
	n.mu.Unlock()
	from := 0
	if q.Cursor != "" {
		var err error
		if from, err = strconv.Atoi(q.Cursor); err != nil {
			return ports.Report{}, err
		}
	}
	r := ports.Report{Header: ports.ReportFields{{Name: "as_of", Value: q.AsOf}, {Name: "known_at", Value: q.KnownAt}}}
	for i := from; i < cmp.Or(n.rows, int(q.Known)); i++ {
		if len(r.Rows) == q.Limit {
			r.HasMore, r.NextCursor = true, strconv.Itoa(i)
			break
		}
		r.Rows = append(r.Rows, i+1)
	}
	return r, nil
}

func (n *numbersSource) last() ports.ReadModelQuery {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[len(n.asked)-1]
}

var model = module.ReadModel{
	Name: "numbers", Projection: "till.numbers", RowsName: "numbers", Flat: true,
	Params: []module.Param{
		{Name: "account", Type: module.ParamString, Required: true, InPath: true}, {Name: "from", Type: module.ParamDate},
		{Name: "held", Type: module.ParamBool}, {Name: "days", Type: module.ParamInteger},
	},
}

// reportFixture is a logFixture with a report.
type reportFixture struct {
	*logFixture
	*query.Reports
	entity   ports.LegalEntity
	progress *fakeProgress
	source   *numbersSource
}

func newReportFixture(t *testing.T, events int, maxWait time.Duration) *reportFixture {
	t.Helper()
	d := &reportFixture{logFixture: newLogFixture(), progress: &fakeProgress{reached: event.Sequence(events)}, source: &numbersSource{}}
	d.entity = d.createEntity(t, "acme", "USMF")
	d.fill(t, d.entity, events)
	var err error
	d.Reports, err = query.NewReports(d.Service, map[string]module.ReadModel{"till/numbers": model}, map[string]ports.ReadModelSource{"till/numbers": d.source}, d.progress, maxWait)
	require.NoError(t, err)
	return d
}

func (d *reportFixture) request() query.ReportQuery {
	return query.ReportQuery{Path: "till/numbers", Entity: d.entity, Params: map[string]string{"account": "1"}, Limit: 100}
}

// query queries the report with a modified request.
func (d *reportFixture) query(t *testing.T, change func(*query.ReportQuery)) (ports.Report, error) {
	t.Helper()
	q := d.request()
	if change != nil {
		change(&q)
	}
	return d.Query(t.Context(), q)
}

func TestReport(t *testing.T) {
	t.Parallel()
	d := newReportFixture(t, 3, time.Minute)
	r, err := d.query(t, nil)
	require.NoError(t, err)
	require.Equal(t, []any{1, 2, 3}, r.Rows)
	require.Equal(t, []any{"numbers", true}, []any{r.RowsName, r.Flat}, "as the module declared it")
	require.False(t, r.HasMore)
	require.Empty(t, r.NextCursor)
	require.Equal(t, ports.ReadModelQuery{
		Partition: d.entity.Partition, Entity: d.entity, Version: 7, AsOf: event.MustDate("2026-01-01"), Known: 3, KnownAt: "seq:3", Params: map[string]string{"account": "1"}, Limit: 100,
	}, d.source.last())

	_, err = d.query(t, func(q *query.ReportQuery) { q.Path = "till/none" })
	require.Equal(t, "report.not_found", code(t, err))
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	_, err = query.NewReports(d.Service, map[string]module.ReadModel{"till/numbers": model}, nil, d.progress, 0)
	require.Equal(t, "report.unbound", code(t, err))
}

func TestReport_DefaultAsOf(t *testing.T) {
	t.Parallel()
	d := newReportFixture(t, 0, time.Minute)
	d.clock.Set(time.Date(2026, 3, 31, 23, 30, 0, 0, time.UTC))
	for zone, want := range map[string]string{"Europe/Berlin": "2026-04-01", "America/New_York": "2026-03-31", "UTC": "2026-03-31", "no/such": "2026-03-31"} {
		_, err := d.query(t, func(q *query.ReportQuery) { q.Entity.TimeZone = zone })
		require.NoError(t, err)
		require.Equal(t, want, d.source.last().AsOf.String(), zone)
	}
	_, err := d.query(t, func(q *query.ReportQuery) { q.AsOf = "2020-02-29" })
	require.NoError(t, err)
	require.Equal(t, "2020-02-29", d.source.last().AsOf.String())
}

func TestReport_Parameters(t *testing.T) {
	t.Parallel()
	d := newReportFixture(t, 1, time.Minute)
	for name, c := range map[string]struct {
		params      map[string]string
		code, field string
	}{
		"all":              {map[string]string{"account": "1", "from": "2026-01-31", "held": "true", "days": "-5"}, "", ""},
		"missing":          {map[string]string{"from": "2026-01-31"}, "report.parameter_missing", "account"},
		"empty":            {map[string]string{"account": ""}, "report.parameter_missing", "account"},
		"unknown":          {map[string]string{"account": "1", "evil": "x"}, "report.parameter_unknown", "evil"},
		"unknown by case":  {map[string]string{"account": "1", "Held": "true"}, "report.parameter_unknown", "Held"},
		"date":             {map[string]string{"account": "1", "from": "31.01.2026"}, "report.parameter_invalid", "from"},
		"no such date":     {map[string]string{"account": "1", "from": "2026-02-30"}, "report.parameter_invalid", "from"},
		"bool":             {map[string]string{"account": "1", "held": "yes"}, "report.parameter_invalid", "held"},
		"integer":          {map[string]string{"account": "1", "days": "1.5"}, "report.parameter_invalid", "days"},
		"enormous integer": {map[string]string{"account": "1", "days": "9223372036854775808"}, "report.parameter_invalid", "days"},
		"given but empty":  {map[string]string{"account": "1", "days": ""}, "report.parameter_invalid", "days"},
	} {
		_, err := d.query(t, func(q *query.ReportQuery) { q.Params = c.params })
		if c.code == "" {
			require.NoError(t, err, name)
			require.Equal(t, c.params, d.source.last().Params)
			continue
		}
		f, _ := fault.As(err)
		require.NotNil(t, f, name)
		require.Equal(t, []string{c.code, c.field}, []string{f.Code, f.Field}, name)
		require.Equal(t, fault.Invalid, f.Kind, name)
	}
	for name, change := range map[string]func(*query.ReportQuery){
		"report.as_of_invalid":            func(q *query.ReportQuery) { q.AsOf = "today" },
		"report.known_at_invalid":         func(q *query.ReportQuery) { q.KnownAt = "today" },
		"report.known_at_in_future":       func(q *query.ReportQuery) { q.KnownAt = "seq:2" },
		"report.min_sequence_invalid":     func(q *query.ReportQuery) { q.MinSequence = "-1" },
		"report.min_sequence_invalid ":    func(q *query.ReportQuery) { q.MinSequence = "seq:1" },
		"report.min_sequence_invalid  ":   func(q *query.ReportQuery) { q.MinSequence = "9223372036854775808" },
		"report.known_at_in_future later": func(q *query.ReportQuery) { q.KnownAt = "2026-01-02T12:00:00Z" },
	} {
		_, err := d.query(t, change)
		require.Contains(t, name, code(t, err))
	}
}

func TestReport_KnownAtIsStable(t *testing.T) {
	t.Parallel()
	d := newReportFixture(t, 3, time.Minute)
	for _, at := range []string{"seq:2", "2026-01-01T12:00:02Z", "2026-01-01T12:00:03Z"} {
		read := func() string {
			r, err := d.query(t, func(q *query.ReportQuery) { q.KnownAt, q.AsOf = at, "2026-01-31" })
			require.NoError(t, err)
			text, err := json.Marshal(r)
			require.NoError(t, err)
			require.Contains(t, string(text), at)
			return string(text)
		}
		first := read()
		d.fill(t, d.entity, 2)
		d.progress.reached += 2
		require.Equal(t, first, read())
	}
	// A time between two events of one second resolves to the first of them.
	_, err := d.query(t, func(q *query.ReportQuery) { q.KnownAt = "2026-01-01T12:00:01.999999Z" })
	require.NoError(t, err)
	require.EqualValues(t, 1, d.source.last().Known)
}

func TestReport_MinSequence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newReportFixture(t, 10, time.Minute)
		d.progress.reached, d.progress.step = 7, 1
		r, err := d.query(t, func(q *query.ReportQuery) { q.MinSequence = "9" })
		require.NoError(t, err)
		require.Len(t, r.Rows, 9, "the position of the read model, not the head")
		require.Equal(t, "seq:9", d.source.last().KnownAt)
		require.Equal(t, 4, d.progress.asked, "until the position is reached, and after the query")

		// known_at is waited for as well and keeps its value.
		d.progress.reached = 3
		r, err = d.query(t, func(q *query.ReportQuery) { q.KnownAt, q.MinSequence = "seq:2", "5" })
		require.NoError(t, err)
		require.Len(t, r.Rows, 2)
		require.EqualValues(t, 7, d.progress.reached)
	})
}

func TestReport_NotCaughtUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newReportFixture(t, 10, time.Minute)
		d.progress.reached = 7
		for name, change := range map[string]func(*query.ReportQuery){
			"min_sequence":   func(q *query.ReportQuery) { q.MinSequence = "9" },
			"beyond the log": func(q *query.ReportQuery) { q.MinSequence = "99" },
			"known_at":       func(q *query.ReportQuery) { q.KnownAt = "seq:9" },
			"known_at time":  func(q *query.ReportQuery) { q.KnownAt = "2026-01-01T12:00:09Z" },
		} {
			begun := time.Now()
			_, err := d.query(t, change)
			require.Equal(t, time.Minute, time.Since(begun), name)
			f, _ := fault.As(err)
			require.NotNil(t, f, name)
			require.Equal(t, "read.not_caught_up", f.Code, name)
			require.Equal(t, fault.Timeout, f.Kind)
			require.Equal(t, "7", f.Actual)
			require.Positive(t, f.RetryAfter)
		}
		require.Empty(t, d.source.asked)

		// Without min_sequence and known_at the present rows are returned, with their sequence.
		begun := time.Now()
		r, err := d.query(t, nil)
		require.NoError(t, err)
		require.Len(t, r.Rows, 7)
		require.Equal(t, "seq:7", d.source.last().KnownAt)
		require.Equal(t, time.Minute, time.Since(begun), "the head was waited for")
		begun = time.Now()
		r, err = d.query(t, func(q *query.ReportQuery) { q.MinSequence = "7" })
		require.NoError(t, err)
		require.Len(t, r.Rows, 7)
		_, err = d.query(t, func(q *query.ReportQuery) { q.KnownAt = "seq:0" })
		require.NoError(t, err)
		require.Zero(t, time.Since(begun), "nothing is waited for")
	})
}

func TestReport_WaitCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newReportFixture(t, 10, time.Hour)
		d.progress.reached = 7
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := d.Query(ctx, d.request())
			done <- err
		}()
		<-time.After(time.Minute)
		begun := time.Now()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Zero(t, time.Since(begun))
		d.progress.mu.Lock()
		d.progress.err = errors.New("broken")
		d.progress.mu.Unlock()
		_, err := d.query(t, nil)
		require.EqualError(t, err, "broken", "an error is not a slow read model")
	})
}

// readAllPages reads a report page by page and calls between after every page.
func (d *reportFixture) readAllPages(t *testing.T, change func(*query.ReportQuery), between func()) (rows []any, headers []ports.ReportFields) {
	t.Helper()
	cursor := ""
	for {
		r, err := d.query(t, func(q *query.ReportQuery) {
			q.Limit = 2
			if change != nil {
				change(q)
			}
			q.Cursor = cursor
		})
		require.NoError(t, err)
		rows, headers = append(rows, r.Rows...), append(headers, r.Header)
		if !r.HasMore {
			require.Empty(t, r.NextCursor)
			return rows, headers
		}
		cursor = r.NextCursor
		between()
	}
}

func TestReport_PagesArePinned(t *testing.T) {
	t.Parallel()
	d := newReportFixture(t, 5, time.Minute)
	midnight := func() { // between the pages the log grows and a day passes
		d.fill(t, d.entity, 3)
		d.progress.reached += 3
		d.clock.Advance(24 * time.Hour)
	}
	rows, headers := d.readAllPages(t, nil, midnight)
	require.Equal(t, []any{1, 2, 3, 4, 5}, rows)
	for _, h := range headers {
		require.Equal(t, headers[0], h, "as_of and known_at are those of the first page")
	}
	rows, _ = d.readAllPages(t, func(q *query.ReportQuery) { q.KnownAt = "2026-01-01T12:00:04Z" }, midnight)
	require.Equal(t, []any{1, 2, 3, 4}, rows)
}

func TestReport_PinnedSequence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newReportFixture(t, 5, time.Minute)
		r, err := d.query(t, func(q *query.ReportQuery) { q.Limit = 2 })
		require.NoError(t, err)
		second := func(q *query.ReportQuery) { q.Limit, q.Cursor = 2, r.NextCursor }

		// The log has grown and the read model lags: the second page does not need the new events.
		d.fill(t, d.entity, 3)
		asked, begun := d.progress.asked, time.Now()
		_, err = d.query(t, second)
		require.NoError(t, err)
		require.Zero(t, time.Since(begun))
		require.Equal(t, asked+2, d.progress.asked, "before and after the query, without waiting")

		// The read model is being rebuilt: rows of the report would be missing.
		d.progress.reached = 1
		_, err = d.query(t, second)
		require.Equal(t, "read.not_caught_up", code(t, err))
		require.Equal(t, time.Minute, time.Since(begun))
	})
}

func TestReport_CursorBinding(t *testing.T) {
	t.Parallel()
	d := newReportFixture(t, 5, time.Minute)
	other := d.createEntity(t, "acme", "DEMF")
	first, err := d.query(t, func(q *query.ReportQuery) { q.Limit = 2 })
	require.NoError(t, err)
	for name, change := range map[string]func(*query.ReportQuery){
		"parameter":          func(q *query.ReportQuery) { q.Params = map[string]string{"account": "2"} },
		"one more parameter": func(q *query.ReportQuery) { q.Params = map[string]string{"account": "1", "held": "true"} },
		"legal entity":       func(q *query.ReportQuery) { q.Entity = other },
		"tenant":             func(q *query.ReportQuery) { q.Entity.TenantID = "rival" },
		"another known_at":   func(q *query.ReportQuery) { q.KnownAt = "seq:4" },
		"another as_of":      func(q *query.ReportQuery) { q.AsOf = "2025-12-31" },
	} {
		d.progress.reached = 5
		_, err := d.query(t, func(q *query.ReportQuery) { q.Cursor = first.NextCursor; change(q) })
		require.Equal(t, "cursor.foreign", code(t, err), name)
	}
	// A request with the values that the first page resolved is the same query.
	_, err = d.query(t, func(q *query.ReportQuery) { q.Cursor, q.KnownAt, q.AsOf = first.NextCursor, "seq:5", "2026-01-01" })
	require.NoError(t, err)

	page, err := d.Events(t.Context(), byScope(2))
	require.NoError(t, err)
	for name, cursor := range map[string]string{"garbage": "x", "short": "AAAA", "not base64": "????", "of events": page.NextCursor, "the source's own": "2"} {
		_, err := d.query(t, func(q *query.ReportQuery) { q.Cursor = cursor })
		require.Contains(t, []string{"cursor.malformed", "cursor.foreign"}, code(t, err), name)
	}
	for i := range first.NextCursor[:len(first.NextCursor)-1] {
		flipped := []byte(first.NextCursor)
		flipped[i] ^= 1
		_, err := d.query(t, func(q *query.ReportQuery) { q.Cursor = string(flipped) })
		require.Contains(t, []string{"cursor.malformed", "cursor.foreign"}, code(t, err), "byte %d", i)
	}
}
