package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/erpbackbone/backbone/adapters/postgres"
)

const shownRows = 20 // of a table for people; --json has all

// sheet is text for people, in columns.
type sheet struct {
	text  bytes.Buffer
	table *tabwriter.Writer
}

func (s *sheet) begin(title string, columns ...string) {
	s.end()
	fmt.Fprintf(&s.text, "\n%s\n", title)
	s.table = tabwriter.NewWriter(&s.text, 0, 0, 2, ' ', 0)
	s.row(columns...)
}

func (s *sheet) row(cells ...string) { fmt.Fprintln(s.table, "  "+strings.Join(cells, "\t")) }

func (s *sheet) end() {
	if s.table != nil {
		_ = s.table.Flush() // into memory
		s.table = nil
	}
}

// print shows the findings first, then what they were taken from.
func (d Diagnosis) print(w io.Writer) error {
	s := &sheet{}
	for _, f := range d.Findings {
		fmt.Fprintf(&s.text, "%-4s  %s: %s: %s\n", strings.ToUpper(string(f.Status)), f.Section, f.Subject, f.Detail)
		if f.Next != "" {
			fmt.Fprintf(&s.text, "      -> %s\n", f.Next)
		}
	}
	s.settings("", d.Settings)
	s.contention("", d.Contention)
	s.delivery(d.Delivery)
	s.storage("", d.Storage)
	s.throughput(d.Throughput)
	s.distribution(d.Distribution)
	if k := d.KeyStore; k != nil {
		s.settings("Key store: ", k.Settings)
		s.contention("Key store: ", k.Contention)
		s.storage("Key store: ", k.Storage)
	}
	s.end()
	_, err := w.Write(s.text.Bytes())
	return err
}

func (s *sheet) settings(prefix string, settings []postgres.Setting) {
	if len(settings) == 0 {
		return
	}
	s.begin(prefix+"Settings", "SETTING", "VALUE", "WANTED", "", "WHY")
	for _, v := range settings {
		verdict := "ok"
		if !v.Sound {
			verdict = "WRONG"
		}
		s.row(v.Name, v.Value, v.Wanted, verdict, v.Why)
	}
}

func (s *sheet) contention(prefix string, c *postgres.Contention) {
	if c == nil {
		return
	}
	if len(c.Waits) > 0 {
		s.begin(prefix+"Waiting for locks", "PID", "WAITS", "FOR", "BEHIND")
		for _, w := range c.Waits[:min(shownRows, len(c.Waits))] {
			what := strings.TrimSpace(w.LockType + " " + w.Relation)
			if w.LegalEntity != "" {
				what = "head of " + w.TenantID + "/" + w.LegalEntity
			}
			s.row(fmt.Sprint(w.PID), seconds(w.Seconds), what, strings.Trim(fmt.Sprint(w.BlockedBy), "[]"))
		}
	}
	if len(c.Sessions) > 0 {
		s.begin(prefix+"Open transactions", "PID", "ROLE", "APPLICATION", "STATE", "AGE", "SNAPSHOT (transactions ago)")
		for _, t := range c.Sessions[:min(shownRows, len(c.Sessions))] {
			snapshot := "-"
			if t.SnapshotAge >= 0 {
				snapshot = fmt.Sprint(t.SnapshotAge)
			}
			s.row(fmt.Sprint(t.PID), t.Role, t.Application, t.State, seconds(t.Seconds), snapshot)
		}
	}
	for _, h := range c.Holders {
		s.end()
		fmt.Fprintf(&s.text, "  %s %s holds back %d transactions\n", h.Kind, h.Name, h.SnapshotAge)
	}
}

func (s *sheet) delivery(d *postgres.Delivery) {
	if d == nil || len(d.Projections) == 0 {
		return
	}
	s.begin("Projections", "PROJECTION", "ROLE", "STATE", "LEGAL ENTITIES", "EVENTS BEHIND", "SINCE", "STANDS STILL IN")
	for _, p := range d.Projections {
		s.row(fmt.Sprintf("%s v%d", p.Projection, p.Version), cmp.Or(p.Role, "-"), cmp.Or(p.State, "-"), fmt.Sprint(p.Entities), fmt.Sprint(p.Behind), stamp(p.WaitingSince), fmt.Sprint(p.Faulted))
	}
}

func (s *sheet) storage(prefix string, v *postgres.Storage) {
	if v == nil {
		return
	}
	title := fmt.Sprintf("%sTables, %s in all", prefix, megabytes(v.Bytes))
	if v.PayloadShare > 0 {
		title += fmt.Sprintf(", %.0f %% of it payloads", 100*v.PayloadShare)
	}
	s.begin(title, "TABLE", "PARTS", "ROWS (estimate)", "ROWS ON DISK", "INDEXES")
	for _, t := range v.Tables[:min(shownRows, len(v.Tables))] {
		rows := "-"
		if t.Rows >= 0 {
			rows = fmt.Sprint(t.Rows)
		}
		s.row(t.Name, fmt.Sprint(t.Partitions), rows, megabytes(t.Bytes), megabytes(t.IndexBytes))
	}
	s.begin(prefix+"Rows that change", "TABLE", "LIVE (estimate)", "DEAD (estimate)", "VACUUM", "ANALYZE")
	for _, t := range v.VacuumStates[:min(shownRows, len(v.VacuumStates))] {
		s.row(t.Name, fmt.Sprint(t.Live), fmt.Sprint(t.Dead), stamp(t.VacuumedAt), stamp(t.AnalyzedAt))
	}
}

func (s *sheet) throughput(t *postgres.Throughput) {
	if t == nil {
		return
	}
	s.begin("Throughput by hour (UTC); ~ is estimated from a sample", "HOUR", "EVENTS", "COMMITS", "EVENTS PER COMMIT")
	for _, h := range t.Hours {
		s.hour(h)
	}
	if len(t.LegalEntities) == 1 {
		return // the same once more
	}
	s.begin("Events by legal entity", "LEGAL ENTITY", "EVENTS")
	for _, e := range t.LegalEntities[:min(shownRows, len(t.LegalEntities))] {
		var n int64
		for _, h := range e.Hours {
			n += h.Events
		}
		s.row(e.TenantID+"/"+e.LegalEntity, fmt.Sprint(n))
	}
}

func (s *sheet) hour(h postgres.HourOfAppends) {
	commits, each := fmt.Sprint(h.Commits), "-"
	if h.Estimated {
		commits = "~" + commits
	}
	if h.Commits > 0 {
		each = fmt.Sprintf("%.1f", float64(h.Events)/float64(h.Commits))
	}
	s.row(h.Hour.Format("2006-01-02 15:00"), fmt.Sprint(h.Events), commits, each)
}

func (s *sheet) distribution(d *postgres.Distribution) {
	if d == nil {
		return
	}
	s.begin("Legal entities", "LEGAL ENTITY", "PARTITION", "EVENTS")
	for _, e := range d.LegalEntities[:min(shownRows, len(d.LegalEntities))] {
		s.row(e.TenantID+"/"+e.LegalEntity, fmt.Sprint(e.Partition), fmt.Sprint(e.Events))
	}
	how := "counted"
	if !d.Exact {
		how = fmt.Sprintf("estimated from %d events", d.Sampled)
	}
	for _, group := range []struct {
		title string
		types []postgres.TypeShare
	}{{"Event types", d.EventTypes}, {"Stream types", d.StreamTypes}} {
		s.begin(group.title+", "+how, "TYPE", "EVENTS", "SHARE", "PAYLOAD (bytes)")
		for _, t := range group.types[:min(shownRows, len(group.types))] {
			s.row(t.Type, fmt.Sprint(t.Events), fmt.Sprintf("%.1f %%", 100*float64(t.Events)/float64(max(1, d.Events))), fmt.Sprint(t.PayloadBytes))
		}
	}
	if len(d.Streams) > 0 {
		s.begin("Largest streams that the sample met", "LEGAL ENTITY", "TYPE", "FIRST EVENT (sequence)", "EVENTS")
		for _, v := range d.Streams {
			s.row(v.LegalEntity, v.StreamType, fmt.Sprint(v.FirstSequence), fmt.Sprint(v.Events))
		}
	}
	if len(d.Keys) > 0 {
		s.begin("Keys that events refer to most (the planner's estimate)", "KIND", "COMMON KEYS", "EVENTS OF THE HOTTEST", "EVENTS OF ALL THESE")
		for _, k := range d.Keys {
			s.row(k.Kind, fmt.Sprint(k.CommonKeys), fmt.Sprint(k.Hottest), fmt.Sprint(k.References))
		}
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}
