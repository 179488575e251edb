package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/application/verify/jobs"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// verifyOnServer lets a server verify the caller's tenant, shows how far it is, and prints the
// verdict. If ctx ends before the run does, it cancels the run. The exit codes are those of
// `backbone verify`.
func verifyOnServer(ctx context.Context, s *session, o verifyOptions) error {
	body := client.VerificationRequest{LegalEntities: o.LegalEntities, OpenKeys: o.OpenKeys}
	if o.Head != "" {
		heads, err := os.ReadFile(o.Head)
		if err != nil {
			return exitError{2, fault.New(fault.NotFound, "verify.heads_missing", "the file of exported heads cannot be read; check --head").WithCause(err)}
		}
		body.Heads = heads
	}
	v, err := s.StartVerification(ctx, body, s.keep())
	if err != nil {
		return exitError{2, err}
	}
	show := newProgress(s.err, s.terminal)
	for pause := firstPoll; v.Status == string(jobs.Running); pause = min(2*pause, time.Second) {
		if s.terminal {
			done, _ := strconv.Atoi(v.EventsDone)
			total, _ := strconv.Atoi(v.EventsTotal)
			show.report(cmp.Or(v.Checking, "event types"), done, total)
		}
		next, err := v, ports.Sleep(ctx, pause)
		if err == nil {
			next, err = s.GetVerification(ctx, v.ID, s.keep())
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			_, failed := s.CancelVerification(stopping, v.ID)
			return exitError{2, cmp.Or(failed, err)}
		default:
			return exitError{2, err}
		}
		v = next
	}
	sound := v.Status == string(jobs.Sound)
	headFile := ""
	if sound && o.ExportHead != "" {
		text, err := json.MarshalIndent(v.Heads, "", "  ")
		if err == nil {
			err = replaceFile(o.ExportHead, append(text, '\n'))
		}
		if err != nil {
			return exitError{2, err}
		}
		headFile = o.ExportHead
	}
	if err := s.print(func(p *page) { p.verification(v, headFile) }); err != nil {
		return exitError{2, err}
	}
	switch {
	case v.Findings > 0: // even if it did not reach its end: damage that was found stays found
		return exitError{code: 1}
	case !sound:
		return exitError{2, fault.New(fault.FailedPrecondition, "verification.unfinished", "the verification is %s, so there is no verdict; start another one", v.Status)}
	}
	return nil
}

// verification writes a whole verification.
func (p *page) verification(v client.Verification, headFile string) {
	p.row("LEGAL ENTITY", "EVENTS", "HEAD", "HEAD CHECKSUM", "REDACTIONS", "ERASURES", "VERDICT")
	state := func(listed []client.VerificationFinding, suppressed int) string {
		if n := len(listed) + suppressed; n > 0 {
			return fmt.Sprintf("TAMPERED (%s)", counted(n, "finding"))
		}
		return "sound"
	}
	for _, r := range v.Results {
		p.row(r.LegalEntity, r.Events, r.HeadSequence, cmp.Or(r.HeadChecksum, "-"), r.Redactions, r.Erasures, state(r.Findings, r.SuppressedFindings))
	}
	for _, r := range v.Results {
		if r.UnboundIntents != "0" {
			p.line("%s: %s intents from before events bound them; the number must not grow", r.LegalEntity, r.UnboundIntents)
		}
		if r.UnboundNumbers != "0" {
			p.line("%s: %s numbers of series from before events said which they took; the number must not grow", r.LegalEntity, r.UnboundNumbers)
		}
		if r.UnboundRequests != "0" {
			p.line("%s: %s idempotency keys from before events bound them; they expire", r.LegalEntity, r.UnboundRequests)
		}
		if r.Policy.Sha256 != "" {
			p.policy(r.LegalEntity, r.Policy.Sha256, r.Policy.Release, r.Policy.InForce, "the server")
		}
		p.damage(r.LegalEntity, r.Findings, r.SuppressedFindings)
	}
	for _, e := range v.EventTypes {
		name := "Event types of the tenant"
		if e.Shared {
			name = "Event types of built-in modules"
		}
		p.line("%s: %s, head %d: %s", name, counted(e.Changes, "change"), e.HeadChange, state(e.Findings, e.SuppressedFindings))
		p.damage(name, e.Findings, e.SuppressedFindings)
	}
	if v.Erasures.Sound || v.Erasures.Finding != "" { // absent if the run compared none
		p.erased(&erasureVerdict{v.Erasures.Finding})
	}
	switch {
	case v.Findings > 0:
		p.line("Tampered: the places are listed above. Compare with a backup and with exported heads before you change anything.")
	case v.Status == string(jobs.Sound):
		p.line("Sound: %s events, checked by the server in verification %s.", v.EventsDone, v.ID)
	default:
		p.line("Verification %s is %s. %s", v.ID, v.Status, v.Error)
	}
	if headFile != "" {
		p.line("The heads are in %s. Keep it where no one who can write to the database can write.", headFile)
	}
}

func (p *page) damage(of string, listed []client.VerificationFinding, suppressed int) {
	for _, f := range listed {
		about := ""
		if f.EventID != "" {
			about = " (event " + f.EventID + ")"
		}
		p.line("%s sequence %s%s: %s: %s", of, f.Sequence, about, f.Kind, f.Detail)
	}
	if suppressed > 0 {
		p.line("%s: %s", of, counted(suppressed, "further finding"))
	}
}
