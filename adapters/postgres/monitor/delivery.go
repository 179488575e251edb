package monitor

import (
	"context"
	"fmt"
	"time"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/keystoredb"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Delivery reports the lag of projections, waiting intents and open erasures.
type Delivery struct {
	Projections    []ProjectionLag `json:"projections"`
	WaitingIntents int64           `json:"waiting_intents"`
	OldestIntent   time.Time       `json:"oldest_waiting_intent"` // zero without one
	Erasures       *OpenErasures   `json:"erasures"`              // nil: not read, because only the eraser's role may, or because of ErasuresUnknown
	// ErasuresUnknown is the fault because of which Erasures is nil; nil: none.
	ErasuresUnknown *fault.Error `json:"-"`
}

// ProjectionLag is one version of a projection, summed over the legal entities in which it has
// a checkpoint.
type ProjectionLag struct {
	Projection   string    `json:"projection"`
	Version      int32     `json:"version"`
	Role         string    `json:"role"`  // building, active or retained; "" if no server has entered it in the register
	State        string    `json:"state"` // of the version: created, running, paused, stopped or faulted; "" with Role
	Entities     int       `json:"legal_entities"`
	Faulted      int       `json:"faulted"`       // legal entities in which it is halted
	Retrying     int       `json:"retrying"`      // legal entities in which its last attempt failed
	Behind       int64     `json:"lag_events"`    // over all of them
	WaitingSince time.Time `json:"waiting_since"` // recording time of the oldest event that it has not applied; zero without one
	AsOf         time.Time `json:"as_of"`
}

// OpenErasures are requests that have not ended.
type OpenErasures struct {
	Open  int64     `json:"open"`
	Stuck int64     `json:"stuck"`  // failed at one step five times or more
	DueOn time.Time `json:"due_on"` // of the most urgent; zero without one
}

const (
	countedIntents = 10_000        // of a legal entity; more are not counted
	lagWarn        = 60            // seconds that an event waits for a projection
	intentWarn     = 7 * 24 * 3600 // seconds that an intent waits for a person
	dueWarn        = 7 * 24 * time.Hour
)

// Delivery reads checkpoints and waiting intents. Fault store.question_too_slow.
func (m *Monitor) Delivery(ctx context.Context, now time.Time) (Delivery, error) {
	out := Delivery{Projections: []ProjectionLag{}}
	rows, err := m.queries.ListProjectionLags(ctx, m.conn)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	for _, r := range rows { // by projection and version
		last := len(out.Projections) - 1
		if last < 0 || out.Projections[last].Projection != r.Projection || out.Projections[last].Version != r.Version {
			out.Projections = append(out.Projections, ProjectionLag{Projection: r.Projection, Version: r.Version, Role: r.Role, State: r.State, AsOf: now.UTC()})
			last++
		}
		p := &out.Projections[last]
		p.Entities++
		p.Behind += max(0, r.Head-r.Sequence)
		switch r.Status {
		case "running":
		case "faulted":
			p.Faulted++
		default:
			p.Retrying++
		}
		if since := stampOf(r.WaitingSince); !since.IsZero() && (p.WaitingSince.IsZero() || since.Before(p.WaitingSince)) {
			p.WaitingSince = since
		}
	}
	waiting, err := m.queries.GetWaitingIntents(ctx, m.conn, countedIntents)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	out.WaitingIntents, out.OldestIntent = waiting.Waiting, stampOf(waiting.Oldest)
	return out, nil
}

// Findings judges delays at the given time.
func (d Delivery) Findings(now time.Time) []Finding {
	var out []Finding
	for _, p := range d.Projections {
		if projection.Role(p.Role).IsLive() { // other versions are not advanced
			out = append(out, p.judge(now))
		}
	}
	if d.WaitingIntents == 0 {
		out = append(out, newFinding("delivery", "waiting intents", 0, 0, 0).with("", "none"))
	} else {
		age := now.Sub(d.OldestIntent).Seconds()
		out = append(out, newFinding("delivery", "waiting intents", age, intentWarn, 0).with("remind the approvers, or let the requesters withdraw",
			"%d wait for approval, the oldest for %s", d.WaitingIntents, duration(age)))
	}
	if f := d.ErasuresUnknown; f != nil {
		return append(out, Finding{Section: "delivery", Subject: "erasures", Status: FindingWarn, Detail: "not answered (" + f.Code + ")", Next: f.Detail})
	}
	return append(out, d.Erasures.judge(now))
}

// judge judges the lag. Readers see the active version only, so the state of another version
// is at most a warning.
func (p *ProjectionLag) judge(now time.Time) Finding {
	var late float64
	if !p.WaitingSince.IsZero() {
		late = now.Sub(p.WaitingSince).Seconds()
	}
	f := newFinding("delivery", fmt.Sprintf("projection %s v%d", p.Projection, p.Version), late, lagWarn, 0)
	next := "see that a server runs; the metric backbone_projection_lag_seconds says whether it catches up"
	detail := fmt.Sprintf("%d events behind", p.Behind)
	if late > 0 {
		detail += ", the oldest has waited " + duration(late)
	}
	building := p.Role == string(projection.Building)
	if building {
		detail += "; it is being built and not readable yet"
	}
	state := projection.Status(p.State)
	switch {
	case p.Faulted > 0 || state == projection.Faulted:
		f.Status, next = FindingFail, "backbone projections show names the code; correct its cause, then backbone projections fix"
	case state == projection.Paused || state == projection.Stopped || state == projection.Created:
		detail += "; it is " + p.State
		next = "an operator decided so; continue it with backbone projections resume, or start"
	case p.Retrying > 0:
		f.Status, next = FindingWarn, "backbone projections show names the code; it retries by itself"
	case building:
		f.Status = FindingOK
	}
	if f.Status == FindingFail && p.Role != string(projection.Active) {
		f.Status = FindingWarn
	}
	if p.Faulted > 0 {
		detail += fmt.Sprintf("; halted in %d of %d legal entities", p.Faulted, p.Entities)
	} else if state == projection.Faulted {
		detail += "; halted in all legal entities"
	}
	if p.Retrying > 0 {
		detail += fmt.Sprintf("; the last attempt failed in %d", p.Retrying)
	}
	return f.with(next, "%s", detail)
}

func (e *OpenErasures) judge(now time.Time) Finding {
	f := newFinding("delivery", "erasures", 0, 0, 0)
	switch {
	case e == nil:
		return f.with("", "not asked: give the configuration with database.eraser_dsn or keystore.eraser_dsn")
	case e.Open == 0:
		return f.with("", "no request is open")
	case e.Stuck > 0 || e.DueOn.Before(now.Truncate(24*time.Hour)):
		f.Status = FindingFail
	case e.DueOn.Before(now.Add(dueWarn)):
		f.Status = FindingWarn
	}
	return f.with("backbone erasure list names them, and what each waits for",
		"%d requests are open, %d of them stuck; the most urgent is due on %s", e.Open, e.Stuck, e.DueOn.Format(time.DateOnly))
}

// OpenErasures counts the requests in the key store's database, which only the eraser's
// role may. Fault store.question_too_slow.
func (m *Monitor) OpenErasures(ctx context.Context) (OpenErasures, error) {
	var open []string
	for _, state := range shredding.ErasureStates() {
		if !state.Final() {
			open = append(open, string(state))
		}
	}
	row, err := keystoredb.New().CountOpenErasures(ctx, m.conn, open)
	if err != nil {
		return OpenErasures{}, monitorFault(ctx, err)
	}
	out := OpenErasures{Open: row.Open, Stuck: row.Stuck}
	if row.Open > 0 {
		out.DueOn = row.DueOn.Time
	}
	return out, nil
}
