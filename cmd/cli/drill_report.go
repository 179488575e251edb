package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/basebackup"
)

// Verdicts of a drill.
const (
	drillSound      = "sound"
	drillDamaged    = "damaged"
	drillOutdated   = "outdated"   // sound, and older than --max-age
	drillIncomplete = "incomplete" // nothing was found, and it could not finish, or a service did not answer
)

// drillReport is the answer of a drill.
type drillReport struct {
	Verdict      string               `json:"verdict"`
	At           time.Time            `json:"drilled_at"`
	Findings     []string             `json:"findings,omitempty"` // beside those of the verification
	NotChecked   []string             `json:"not_checked,omitempty"`
	Backup       drilledBackup        `json:"backup"`
	Skipped      []basebackup.Skipped `json:"skipped,omitempty"` // in the folder of backups
	Events       uint64               `json:"events"`
	NewestEvent  time.Time            `json:"newest_event_at,omitzero"` // when it was recorded
	Lacks        drillLacks           `json:"lacks"`
	Keys         int64                `json:"restored_keys"`
	Receipts     int                  `json:"replayed_receipts"`
	Steps        []drillStep          `json:"steps"`
	Verification verdictText          `json:"verification"`
	Kept         string               `json:"kept,omitempty"` // folder of the copy

	isIncomplete bool
	verdict      verdict
}

// drilledBackup is the backup that was restored.
type drilledBackup struct {
	Folder     string    `json:"folder"`
	Format     string    `json:"format"`
	Started    time.Time `json:"started_at"`
	Bytes      int64     `json:"bytes"`
	PostgreSQL string    `json:"postgresql"`
	IsVerified bool      `json:"files_verified"` // against its manifest
}

// drillLacks is what was made after the backup, so that a restore of it loses it.
type drillLacks struct {
	SignedEvents uint64 `json:"signed_events"` // of the newest checkpoint outside of the database
	HeadEvents   uint64 `json:"head_events"`   // of the file of heads
	Erasures     int    `json:"erasures"`      // of the receipts; the drill has repeated them in the copy
}

// drillStep is how long a step took.
type drillStep struct {
	Step         string `json:"step"`
	Milliseconds int64  `json:"milliseconds"`
}

// conclude gives the verdict and prints the report.
func (d *restoreDrill) conclude() error {
	r := &d.report
	switch {
	case !r.verdict.sound || len(r.Findings) > 0:
		r.Verdict = drillDamaged
	case d.MaxAge > 0 && r.At.Sub(r.Backup.Started) > d.MaxAge:
		r.Verdict = drillOutdated
	case r.isIncomplete:
		r.Verdict = drillIncomplete
	default:
		r.Verdict = drillSound
	}
	r.Verification = r.verdict.text()
	return d.show(r, func(p *page) { p.drill(r) })
}

// drill writes the report of a drill.
func (p *page) drill(r *drillReport) {
	age := func(t time.Time) string {
		return fmt.Sprintf("%s, %s before this drill", t.UTC().Format(minuteLayout), r.At.Sub(t).Round(time.Second))
	}
	files := "not compared with a manifest"
	if r.Backup.IsVerified {
		files = "those of the manifest"
	}
	p.row("Backup", fmt.Sprintf("%s (%s, PostgreSQL %s, %d MB)", r.Backup.Folder, r.Backup.Format, r.Backup.PostgreSQL, r.Backup.Bytes>>20))
	p.row("Begun", age(r.Backup.Started))
	p.row("Files", files)
	newest := "there is none"
	if !r.NewestEvent.IsZero() {
		newest = age(r.NewestEvent)
	}
	p.row("Newest event", newest)
	for _, s := range r.Steps {
		p.row("Step: "+s.Step, fmt.Sprintf("%d.%01d s", s.Milliseconds/1000, s.Milliseconds%1000/100))
	}
	for _, s := range r.Skipped {
		p.line("Skipped %s: %s.", s.Name, s.Reason)
	}
	p.line("")
	p.verdict(&r.verdict)
	p.line("")
	if r.Receipts > 0 || r.Keys > 0 {
		p.line("%s replayed in the copy, %s restored from the newest export.", counted(r.Receipts, "receipt"), counted(r.Keys, "key"))
	}
	if n := max(r.Lacks.SignedEvents, r.Lacks.HeadEvents); n > 0 {
		p.line("A restore of this backup loses at least %s, which were signed or exported after it.", counted(n, "event"))
	}
	if n := r.Lacks.Erasures; n > 0 {
		p.line("It lacks %s, which the receipts repeat.", counted(n, "erasure"))
	}
	for _, text := range r.Findings {
		p.line("Found: %s", text)
	}
	for _, text := range r.NotChecked {
		p.line("Not checked: %s.", strings.TrimSuffix(text, "."))
	}
	switch r.Verdict {
	case drillSound:
		p.line("The backup is sound: it restores, and nothing was found.")
	case drillOutdated:
		p.line("Outdated: nothing was found, but the newest backup is older than --max-age. Find out why none was made since.")
	case drillIncomplete:
		p.line("Incomplete: nothing was found, but not everything could be checked.")
	default:
		p.line("Damaged: do not rely on this backup. Verify the database itself now with `backbone verify`, and take another backup.")
	}
}
