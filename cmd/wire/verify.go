package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/fault"
)

// VerifyOptions are the flags of `backbone verify`.
type VerifyOptions struct {
	DSN           string
	Tenant        string // "" is all
	LegalEntities []string
	JSON          bool
	Out           io.Writer
	Err           io.Writer // progress
	Terminal      bool      // Err is a terminal
}

// Verify proves the log sound. sound is meaningful only without an error: an
// error means that the run could not finish.
func Verify(ctx context.Context, o VerifyOptions) (sound bool, err error) {
	store, err := postgres.Open(ctx, postgres.Config{DSN: o.DSN, MaxClockSkew: -1})
	if err != nil {
		return false, err
	}
	defer store.Close()
	show := newProgress(o.Err, o.Terminal)
	var onProgress verify.Progress
	if o.Terminal {
		onProgress = func(entity string, done, total uint64) { show.report(entity, int(done), int(total)) }
	}
	started := time.Now()
	reports, err := verify.Run(ctx, store, o.Tenant, o.LegalEntities, onProgress)
	elapsed := time.Since(started)
	if err == nil && len(reports) == 0 {
		err = nothingToVerify(o.Tenant)
	}
	sound = true
	for _, r := range reports {
		sound = sound && r.Sound()
	}
	if o.JSON {
		encoder := json.NewEncoder(o.Out)
		encoder.SetIndent("", "  ")
		if writeErr := encoder.Encode(map[string]any{"sound": sound && err == nil, "finished": err == nil, "legal_entities": reports}); writeErr != nil {
			return false, writeErr
		}
		return sound, err
	}
	return sound, printVerdict(o.Out, reports, sound, err, elapsed)
}

// nothingToVerify keeps an empty run from passing for a sound one.
func nothingToVerify(tenant string) error {
	if tenant != "" {
		return fault.New(fault.NotFound, "verify.nothing", "tenant %s has no legal entity here, so nothing was verified; check --tenant and the database", tenant)
	}
	return fault.New(fault.NotFound, "verify.nothing", "the database holds no legal entity, so nothing was verified; check that it is the right one")
}

func printVerdict(out io.Writer, reports []verify.EntityReport, sound bool, runErr error, elapsed time.Duration) error {
	if len(reports) == 0 {
		return runErr
	}
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "LEGAL ENTITY\tEVENTS\tHEAD\tHEAD CHECKSUM\tVERDICT")
	events := uint64(0)
	for _, r := range reports {
		verdict := "sound"
		if !r.Sound() {
			verdict = fmt.Sprintf("TAMPERED (%d findings)", len(r.Findings)+r.Suppressed)
		}
		checksum := r.Checksum
		if checksum == "" {
			checksum = "-"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", r.LegalEntity, r.Events, r.Head, checksum, verdict)
		events += r.Events
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range reports {
		for _, f := range r.Findings {
			fmt.Fprintf(out, "%s sequence %d (event %s): %s: %s\n", r.LegalEntity, f.Sequence, f.EventID, f.Kind, f.Detail)
		}
		if r.Suppressed > 0 {
			fmt.Fprintf(out, "%s: %d further findings\n", r.LegalEntity, r.Suppressed)
		}
	}
	if runErr != nil {
		return runErr
	}
	seconds := max(elapsed.Seconds(), 0.001)
	if sound {
		fmt.Fprintf(out, "Sound: %d events, every payload hash and checksum computed again in %.1f s (%.0f events/s).\n", events, seconds, float64(events)/seconds)
	} else {
		fmt.Fprintln(out, "Tampered: the places are listed above. Compare with a backup and with exported heads before you change anything.")
	}
	return nil
}
