package monitor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/monitordb"
)

// Contention lists sessions that wait for locks and sessions that hold back others.
type Contention struct {
	Waits    []LockWait      `json:"waits"`    // the longest first
	Sessions []Session       `json:"sessions"` // in a transaction, the oldest first
	Hidden   int             `json:"hidden"`   // sessions of other roles, which PostgreSQL shows only with pg_read_all_stats
	Holders  []HorizonHolder `json:"holders"`
	// Deadlocks since the server's statistics were reset.
	Deadlocks      int64     `json:"deadlocks"`
	DeadlocksSince time.Time `json:"deadlocks_since"`
	// Conflicts says where lost races of appends are counted: not in the database.
	Conflicts string `json:"conflicts"`
}

// LockWait is a session that waits for locks of other sessions.
type LockWait struct {
	PID         int32   `json:"pid"`
	BlockedBy   []int32 `json:"blocked_by"`
	Seconds     float64 `json:"seconds"`
	LockType    string  `json:"lock_type"`
	Mode        string  `json:"mode"`
	Relation    string  `json:"relation,omitempty"`     // "" when no table is known
	LegalEntity string  `json:"legal_entity,omitempty"` // whose head lock it waits for
	TenantID    string  `json:"tenant,omitempty"`
}

// Session is a transaction that is open. SnapshotAge counts the transactions that
// began since its snapshot, -1 without one; vacuum cannot remove their dead rows before
// it ends. Seconds are those of the transaction, which is as old as its snapshot at most.
type Session struct {
	PID         int32   `json:"pid"`
	Role        string  `json:"role"`
	Application string  `json:"application"`
	State       string  `json:"state"`
	Seconds     float64 `json:"seconds"`
	IdleSeconds float64 `json:"idle_seconds"` // 0 unless idle in its transaction
	SnapshotAge int32   `json:"snapshot_age"`
}

// HorizonHolder keeps old rows alive without a session.
type HorizonHolder struct {
	Kind        string  `json:"kind"` // prepared transaction, replication slot
	Name        string  `json:"name"`
	SnapshotAge int32   `json:"snapshot_age"`
	Seconds     float64 `json:"seconds"` // 0: not known
}

const conflictsElsewhere = "lost races are answered, not stored: see the metric backbone_append_conflicts_total by code"

// Limits of contention, in seconds unless noted. An appender waits 5 s for a
// lock and PostgreSQL ends it after 2 s idle in a transaction, so sessions that reach these
// limits are not appenders.
const (
	waitWarn, waitFail         = 1, 30
	snapshotWarn, snapshotFail = 5 * 60, 60 * 60
	idleWarn, idleFail         = 60, 60 * 60
	holderWarn                 = 5_000_000 // transactions
)

// Contention reads the current locks and sessions. Fault
// store.question_too_slow.
func (m *Monitor) Contention(ctx context.Context) (Contention, error) {
	out := Contention{Waits: []LockWait{}, Sessions: []Session{}, Holders: []HorizonHolder{}, Conflicts: conflictsElsewhere}
	waits, err := m.queries.ListLockWaits(ctx, m.conn)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	for _, w := range waits {
		wait := LockWait{PID: w.Pid, BlockedBy: w.BlockedBy, Seconds: w.Seconds, LockType: w.LockType, Mode: w.Mode, Relation: w.Relation}
		if w.Tuple > 0 && w.Relation == "backbone.partition_heads" {
			head, err := m.queries.GetHeadAt(ctx, m.conn, &monitordb.GetHeadAtParams{Page: w.Page, Tuple: w.Tuple})
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return out, monitorFault(ctx, err)
			}
			wait.LegalEntity, wait.TenantID = head.Code, head.TenantID
		}
		out.Waits = append(out.Waits, wait)
	}
	sessions, err := m.queries.ListSessions(ctx, m.conn)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	for _, s := range sessions {
		switch {
		case s.Hidden:
			out.Hidden++
		case s.TransactionSeconds > 0:
			session := Session{PID: s.Pid, Role: s.Role, Application: s.Application, State: s.State, Seconds: s.TransactionSeconds, SnapshotAge: s.SnapshotAge}
			if strings.HasPrefix(s.State, "idle in transaction") {
				session.IdleSeconds = s.StateSeconds
			}
			out.Sessions = append(out.Sessions, session)
		}
	}
	holders, err := m.queries.ListHorizonHolders(ctx, m.conn)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	for _, h := range holders {
		out.Holders = append(out.Holders, HorizonHolder{Kind: h.Kind, Name: h.Name, SnapshotAge: h.SnapshotAge, Seconds: h.Seconds})
	}
	counters, err := m.queries.GetDatabaseCounters(ctx, m.conn)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	out.Deadlocks, out.DeadlocksSince = counters.Deadlocks, counters.Since.UTC()
	return out, nil
}

// Findings judges lock waits, snapshots and idle transactions.
func (c Contention) Findings() []Finding {
	out := []Finding{c.judgeWaits(), c.judgeSnapshots(), c.judgeIdle()}
	for _, h := range c.Holders {
		f := newFinding("contention", h.Kind, float64(h.SnapshotAge), holderWarn, 0)
		if h.Kind == "prepared transaction" && h.Seconds > snapshotFail {
			f.Status = FindingWarn
		}
		if f.Status != FindingOK {
			out = append(out, f.with("drop it if it is not needed (ROLLBACK PREPARED, or pg_drop_replication_slot): until then tables and indexes grow",
				"%s holds back %d transactions", h.Name, h.SnapshotAge))
		}
	}
	return out
}

func (c Contention) judgeWaits() Finding {
	if len(c.Waits) == 0 {
		return newFinding("contention", "lock waits", 0, waitWarn, waitFail).with("", "no session waits for a lock; %s", c.Conflicts)
	}
	longest := c.Waits[0]
	for _, w := range c.Waits {
		if w.Seconds > longest.Seconds {
			longest = w
		}
	}
	what := "a " + longest.LockType
	switch {
	case longest.LegalEntity != "":
		what = fmt.Sprintf("the head of legal entity %s", longest.LegalEntity)
	case longest.Relation != "":
		what = longest.Relation
	}
	blockers := strings.Trim(strings.ReplaceAll(fmt.Sprint(longest.BlockedBy), " ", ", "), "[]")
	return newFinding("contention", "lock waits", longest.Seconds, waitWarn, waitFail).with(
		"find out what the holder does; if it is not needed, end it: SELECT pg_terminate_backend(pid)",
		"waiting sessions: %d; longest: pid %d, %s for %s, behind pid %s%s", len(c.Waits), longest.PID, duration(longest.Seconds), what, blockers,
		c.describe(longest.BlockedBy))
}

// describe describes the first of the sessions that Contention lists.
func (c Contention) describe(pids []int32) string {
	for _, s := range c.Sessions {
		for _, pid := range pids {
			if s.PID == pid {
				return fmt.Sprintf(" (%s, %q, %s, its transaction is %s old)", s.Role, s.Application, s.State, duration(s.Seconds))
			}
		}
	}
	return ""
}

func (c Contention) judgeSnapshots() Finding {
	oldest := Session{SnapshotAge: -1}
	for _, s := range c.Sessions {
		if s.SnapshotAge >= 0 && s.Seconds > oldest.Seconds {
			oldest = s
		}
	}
	detail := "no snapshot is held"
	if oldest.SnapshotAge >= 0 {
		detail = fmt.Sprintf("pid %d (%s, %q) has held one for %s, %d transactions ago",
			oldest.PID, oldest.Role, oldest.Application, duration(oldest.Seconds), oldest.SnapshotAge)
	}
	if c.Hidden > 0 {
		detail += fmt.Sprintf("; sessions of other roles that are hidden from this one: %d (GRANT pg_read_all_stats shows them)", c.Hidden)
	}
	return newFinding("contention", "oldest snapshot", oldest.Seconds, snapshotWarn, snapshotFail).with(
		"end it, or move the report or dump to a standby: VACUUM cannot remove rows that were replaced since, and appends slow down", "%s", detail)
}

func (c Contention) judgeIdle() Finding {
	oldest, count := Session{}, 0
	for _, s := range c.Sessions {
		if s.IdleSeconds == 0 {
			continue
		}
		if count++; s.IdleSeconds > oldest.IdleSeconds {
			oldest = s
		}
	}
	f := newFinding("contention", "idle in transaction", oldest.IdleSeconds, idleWarn, idleFail)
	if count == 0 {
		return f.with("", "no session")
	}
	return f.with("end it and correct the program: it holds locks and a snapshot without working",
		"sessions: %d; longest: pid %d (%s, %q) for %s", count, oldest.PID, oldest.Role, oldest.Application, duration(oldest.IdleSeconds))
}
