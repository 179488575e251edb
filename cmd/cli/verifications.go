package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/application/verify/jobs"
	"github.com/erpbackbone/backbone/domain/event"
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
			show.report(cmp.Or(v.Checking, "event types"), int(numberOf(v.EventsDone)), int(numberOf(v.EventsTotal)))
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
	p.logTitles()
	reports := make([]verify.EntityReport, len(v.Results))
	for i := range v.Results {
		r := &v.Results[i]
		reports[i] = reportOf(r)
		p.log(&reports[i], r.Redactions, r.Erasures)
	}
	for i := range reports {
		p.remarks(&reports[i], "the server")
	}
	for _, e := range v.EventTypes {
		name := "Event types of the tenant"
		if e.Shared {
			name = "Event types of built-in modules"
		}
		found := findingsOf(e.Findings, e.SuppressedFindings)
		p.other(name, registryHead(e.Changes, e.HeadChange, e.HeadChecksum), "change", &found)
	}
	if v.Erasures.Sound || v.Erasures.Finding != "" { // absent if the run compared none
		p.erased(&erasureVerdict{v.Erasures.Finding})
	}
	switch {
	case v.Findings > 0:
		p.tampered()
	case v.Status == string(jobs.Sound):
		p.line("Sound: %s, checked by the server in verification %s.", counted(numberOf(v.EventsDone), "event"), v.ID)
	default:
		p.line("Verification %s is %s. %s", v.ID, v.Status, v.Error)
	}
	p.keepHeads(headFile)
}

// reportOf is the result for a log as `backbone verify` has it, without redactions and erasures, of
// which a server gives the numbers only.
func reportOf(r *client.VerificationResult) verify.EntityReport {
	report := verify.EntityReport{
		LegalEntity: r.LegalEntity, Events: numberOf(r.Events), Head: event.Sequence(numberOf(r.HeadSequence)), Checksum: r.HeadChecksum,
		UnboundIntents: numberOf(r.UnboundIntents), UnboundNumbers: numberOf(r.UnboundNumbers), UnboundRequests: numberOf(r.UnboundRequests),
		FindingList: findingsOf(r.Findings, r.SuppressedFindings),
	}
	if r.Policy.Sha256 != "" {
		report.Policy = &verify.Policy{SHA256: r.Policy.Sha256, Release: r.Policy.Release, InForce: r.Policy.InForce}
	}
	return report
}

func findingsOf(listed []client.VerificationFinding, suppressed int) verify.FindingList {
	l := verify.FindingList{Suppressed: suppressed}
	for _, f := range listed {
		l.Findings = append(l.Findings, verify.Finding{Kind: verify.FindingKind(f.Kind), Sequence: event.Sequence(numberOf(f.Sequence)), EventID: f.EventID, Detail: f.Detail})
	}
	return l
}

// numberOf is a number that the server writes as text; 0 for another text.
func numberOf(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
