package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

func erasureCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "erasure",
		Short: "Erase the personal data of a person from history",
		Long: "An erasure destroys the keys that a person's values are sealed with. The events stay,\n" +
			"the chain of the log stays valid, and the values read [REDACTED] for ever. One person\n" +
			"requests, another approves.",
	}
	cmd.AddCommand(requestErasureCommand(), approveErasureCommand(),
		endErasureCommand("reject", "End a request, as the second person", (*client.Client).RejectErasureRequest),
		endErasureCommand("withdraw", "Take a request back before it begins", (*client.Client).WithdrawErasureRequest),
		erasureStatusCommand(), listErasuresCommand(), certificateCommand("erasure", "backbone erasure", (*client.Client).GetErasureCertificate), replayCommand())
	return cmd
}

const waitHelp = "follow the request until it has ended or needs a new approval; exit code 1 unless it is completed"

func requestErasureCommand() *cobra.Command {
	var body client.NewErasureRequest
	var key string
	var wait bool
	cmd := &cobra.Command{
		Use:   "request SUBJECT",
		Short: "Request an erasure and see what it would concern",
		Long: "SUBJECT is the pseudonym beside the person's sealed values, type:id. Nothing is erased\n" +
			"before another person has approved. Exit code 1 if the request is refused at once, by a\n" +
			"legal hold or by retention.",
		Example: "  backbone erasure request employee:E-1 --basis gdpr_art_17 --reason \"Letter of 12 March\"\n" +
			"  backbone erasure request person:P-7 --basis court_order --reason \"File 4711\" --legal-entity DEMF --due-on 2026-04-15",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&body.Basis, "basis", "", "gdpr_art_17, subject_request, retention_expired or court_order (required)")
	f.StringVar(&body.Reason, "reason", "", "why, for colleagues and auditors; no personal data (required)")
	f.StringSliceVar(&body.LegalEntities, "legal-entity", nil, "only in these legal entities (default: all that you may see)")
	f.StringVar(&body.DueOn, "due-on", "", "last day, as 2026-03-31 (default: in 30 days)")
	f.StringVar(&key, "idempotency-key", "", "makes the same call twice one request")
	f.BoolVar(&wait, "wait", false, waitHelp)
	required(cmd, "basis", "reason")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		body.Subject = args[0]
		made, err := s.RequestErasure(ctx, client.RequestErasureParams{IdempotencyKey: key}, body, s.keep())
		if err := s.erasure(ctx, wait, made, err); err != nil || wait {
			return err
		}
		if made.Status == string(shredding.ErasureRefused) {
			return endedWithout(made)
		}
		return nil
	})
}

func approveErasureCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Let an erasure begin, as another person than requested it",
		Long: "The approval covers what the request concerns now, which is shown first. Once keys are\n" +
			"destroyed there is no way back.",
		Example: "  backbone erasure approve 01JQ8E6Z6G3V5T8C9N2M4K7R1P --wait",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, waitHelp)
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		seen, err := s.GetErasureRequest(ctx, args[0])
		if err != nil {
			return err
		}
		switch shredding.ErasureState(seen.Status) {
		case shredding.ErasureRequested: // an approval without a scope would approve any later count
			return fault.New(fault.FailedPrecondition, "erasure.move_refused", "it is not counted yet what the request concerns; try again in a moment")
		case shredding.ErasurePreviewed:
			printApproval(s.err, seen)
		}
		// The approval names the scope that was printed. If the request's scope changes before
		// the approval arrives, the server refuses it.
		approved, err := s.ApproveErasureRequest(ctx, args[0], client.ApproveErasure{Scope: seen.Preview.Scope}, s.keep())
		return s.erasure(ctx, wait, approved, err)
	})
}

// printApproval prints on one line the scope that the person is about to approve.
func printApproval(out io.Writer, e client.ErasureRequest) {
	classes := make([]string, len(e.Classes))
	for i, c := range e.Classes {
		classes[i] = c.Class + " " + classOutcome(e, c)
	}
	fmt.Fprintf(out, "Approving what it concerns now: %s in %s, %s, %s; %s\n", e.Subject, strings.Join(e.LegalEntities, ", "),
		counted(e.Preview.Events, "event"), counted(e.Preview.Intents, "intent"), strings.Join(classes, ", "))
	if isUnknown(e) {
		fmt.Fprintln(out, unknownWarning)
	}
}

// endErasureCommand builds reject, for the approver, and withdraw, for the requester.
func endErasureCommand(verb, short string, end func(*client.Client, context.Context, string, client.RejectRequest, ...client.Option) (client.ErasureRequest, error)) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     verb + " ID",
		Short:   short,
		Example: "  backbone erasure " + verb + " 01JQ8E6Z6G3V5T8C9N2M4K7R1P --reason \"Still employed\"",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; no personal data (required)")
	required(cmd, "reason")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		ended, err := end(s.Client, ctx, args[0], client.RejectRequest{Reason: reason}, s.keep())
		return s.erasure(ctx, false, ended, err)
	})
}

func erasureStatusCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "status ID",
		Short: "Show a request and how far it is",
		Example: "  backbone erasure status 01JQ8E6Z6G3V5T8C9N2M4K7R1P\n" +
			"  backbone erasure status 01JQ8E6Z6G3V5T8C9N2M4K7R1P --wait --json",
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, waitHelp)
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		e, err := s.GetErasureRequest(ctx, args[0], s.keep())
		return s.erasure(ctx, wait, e, err)
	})
}

// erasure prints a request; with wait it follows the request to its end first. Faults:
//
//	erasure.ended          FailedPrecondition: the request that was followed ended and
//	                       nothing was erased
//	erasure.scope_changed  FailedPrecondition: a request that was followed needs a new
//	                       approval
func (s *session) erasure(ctx context.Context, wait bool, e client.ErasureRequest, err error) error {
	if err == nil && wait {
		e, err = s.followErasure(ctx, e)
	}
	if err != nil {
		return err
	}
	err = s.print(func(p *page) { p.erasure(e) })
	switch {
	case err != nil || !wait || e.Status == string(shredding.ErasureCompleted):
		return err
	case !shredding.ErasureState(e.Status).Final():
		return fault.New(fault.FailedPrecondition, "erasure.scope_changed",
			"what the request concerns has changed since it was approved, so it needs a new approval and nothing is erased yet; look at the preview, then run `backbone erasure approve %s`", e.ID)
	default:
		return endedWithout(e)
	}
}

// endedWithout returns the fault for a request that ended without erasing anything.
func endedWithout(e client.ErasureRequest) error {
	ended := func(format string, args ...any) error {
		return fault.New(fault.FailedPrecondition, "erasure.ended", format, args...)
	}
	if e.Status != string(shredding.ErasureRefused) {
		return ended("the request ended as %s and nothing was erased; read its end_reason", e.Status)
	}
	against := map[string]string{"legal_hold": "a legal hold", "retention": "minimum retention"}[e.EndReason]
	if against == "" {
		return ended("the request is refused (%s) and nothing is erased; read its classes", e.EndReason)
	}
	until := []string{} // ISO dates, which sort as texts
	for _, c := range e.Classes {
		if c.Until != "" {
			until = append(until, c.Until)
		}
	}
	if len(until) == 0 || len(until) < len(e.Classes) {
		return ended("the request is refused by %s until it is released, and nothing is erased; request it again then", against)
	}
	first, last := slices.Min(until), slices.Max(until)
	when := last
	if first != last {
		when = first + ", in part until " + last
	}
	return ended("the request is refused by %s until %s, and nothing is erased; on the day after, a new request is made by itself and needs an approval", against, when)
}

// Pauses between two reads of a request in progress.
const (
	firstPoll   = 200 * time.Millisecond
	longestPoll = 2 * time.Second
)

// followErasure reads a request until it has ended, or until it waits for an approval
// for the second time: the first approval is what the caller waits for, but no approver
// knows that a second one is needed.
func (s *session) followErasure(ctx context.Context, e client.ErasureRequest) (client.ErasureRequest, error) {
	if waitsForApproval(e) {
		fmt.Fprintf(s.err, "Erasure %s waits until another person runs  backbone erasure approve %s\n", e.ID, e.ID)
	}
	bar := newProgress(s.err, s.terminal)
	scope, approved := "", false
	for wait := firstPoll; ; wait = min(2*wait, longestPoll) {
		total, done := len(e.Steps), 0
		for _, step := range e.Steps {
			if step.Done {
				done++
			}
		}
		if shredding.ErasureState(e.Status).Final() {
			bar.report(e.Status, total, total)
			return e, nil
		}
		if !waitsForApproval(e) {
			approved = true
		} else if approved || scope != "" && e.Preview.Scope != scope { // else it was approved between two reads
			bar.report("waits for a new approval", total, total) // a bar ends only when it is full
			return e, nil
		}
		scope = e.Preview.Scope
		bar.report(stepTitle(e), done, max(total, done+1)) // never full before the end
		err := ports.Sleep(ctx, wait)
		if err != nil {
			return e, err
		}
		if e, err = s.GetErasureRequest(ctx, e.ID, s.keep()); err != nil {
			return e, err
		}
	}
}

func waitsForApproval(e client.ErasureRequest) bool {
	state := shredding.ErasureState(e.Status)
	return state == shredding.ErasureRequested || state == shredding.ErasurePreviewed
}

func stepTitle(e client.ErasureRequest) string {
	if e.Status == string(shredding.ErasurePreviewed) {
		return "waits for another person's approval"
	}
	for _, s := range e.Steps {
		if !s.Done && s.Error != "" {
			return fmt.Sprintf("%s, next step failed %s (%s)", e.Status, counted(s.Attempts, "time"), s.Error)
		}
	}
	return e.Status
}

// erasure writes a whole request and the next step.
func (p *page) erasure(e client.ErasureRequest) {
	p.line("Erasure %s is %s", e.ID, e.Status)
	row := func(name, format string, args ...any) {
		p.row("  "+name, fmt.Sprintf(format, args...))
	}
	row("subject", "%s in %s", e.Subject, strings.Join(e.LegalEntities, ", "))
	row("basis", "%s: %s", e.Basis, e.Reason)
	row("requested", "%s by %s", e.RequestedAt.UTC().Format(minuteLayout), e.RequestedBy)
	row("due", "%s%s", e.DueOn, daysLeft(e))
	if e.ApprovedBy != "" {
		row("approved", "%s by %s", e.ApprovedAt.UTC().Format(minuteLayout), e.ApprovedBy)
	}
	row("concerns", "%s, %s", counted(e.Preview.Events, "event"), counted(e.Preview.Intents, "intent"))
	for _, t := range e.Preview.Types {
		kind := "event"
		if t.Intent {
			kind = "intent"
		}
		row("", "%s %s, %s with %s", t.LegalEntity, t.Type, counted(t.Events, kind), counted(t.Fields, "value"))
	}
	if len(e.Preview.Projections) > 0 {
		row("read models", "%s", strings.Join(e.Preview.Projections, ", "))
	}
	for _, h := range e.Preview.Holds {
		row("legal hold", "%s, %s", h.ID, h.Reason)
	}
	for _, c := range e.Classes {
		row("class "+c.Class, "%s", classOutcome(e, c))
	}
	for _, s := range e.Steps {
		if !s.Done && s.Error != "" {
			row("trouble", "the step after %s failed %s: %s", e.Status, counted(s.Attempts, "time"), s.Error)
		}
	}
	if !e.DestroyedAt.IsZero() {
		row("keys destroyed", "%s", e.DestroyedAt.UTC().Format(minuteLayout))
	}
	if !e.CompletedAt.IsZero() {
		row("completed", "%s", e.CompletedAt.UTC().Format(minuteLayout))
	}
	if e.EndReason != "" {
		row("ended", "%s", e.EndReason)
	}
	switch shredding.ErasureState(e.Status) {
	case shredding.ErasurePreviewed:
		if isUnknown(e) {
			p.line(unknownWarning)
		}
		p.line("Next: another person runs  backbone erasure approve %s", e.ID)
	case shredding.ErasureCompleted:
		p.line("Next: backbone erasure certificate %s", e.ID)
	}
}

const unknownWarning = "Warning: nothing is known about this subject; check the id: approving it keeps the id from ever being used"

// isUnknown reports whether a request found nothing to erase.
func isUnknown(e client.ErasureRequest) bool {
	return e.Preview.Events == 0 && e.Preview.Intents == 0 && len(e.Preview.Projections) == 0
}

func daysLeft(e client.ErasureRequest) string {
	switch {
	case e.DaysLeft == nil:
		return ""
	case *e.DaysLeft < 0:
		return fmt.Sprintf(", %s over", counted(-*e.DaysLeft, "day"))
	default:
		return fmt.Sprintf(", %s left", counted(*e.DaysLeft, "day"))
	}
}

// classOutcome renders the planned or actual outcome for a class of data.
func classOutcome(e client.ErasureRequest, c client.ErasureClass) string {
	switch {
	case c.Erased && !e.DestroyedAt.IsZero():
		return "erased"
	case c.Erased && shredding.ErasureState(e.Status).Final():
		return "not erased"
	case c.Erased:
		return "to be erased"
	case c.Until != "":
		return fmt.Sprintf("kept until %s (%s)", c.Until, c.Refused)
	default:
		return fmt.Sprintf("kept (%s)", c.Refused)
	}
}

func listErasuresCommand() *cobra.Command {
	var statuses []string
	limit := 0
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List requests with the days left, the most urgent first",
		Long:  "Open requests come first, whatever their age; those that have ended fill up the list.",
		Example: "  backbone erasure list\n" +
			"  backbone erasure list --status previewed,approved",
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringSliceVar(&statuses, "status", nil, "only requests in these states")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many, 1 to 1000 (default 100)")
	return serverCommand(cmd, func(ctx context.Context, s *session, _ []string) error {
		if limit < 0 || limit > maxErasures {
			return fault.New(fault.Invalid, "request.parameter_invalid", "a list has 1 to %d requests; correct --limit", maxErasures).WithField("limit")
		}
		all, more, err := s.erasuresByUrgency(ctx, statuses, cmp.Or(limit, defaultErasures))
		if err != nil {
			return err
		}
		if more {
			fmt.Fprintln(s.err, "There are more open requests than are listed; raise --limit, or name states with --status.")
		}
		return s.show(map[string]any{"erasure_requests": all}, func(p *page) {
			if len(all) == 0 {
				p.line("There are no such erasure requests.")
				return
			}
			p.row("ID", "SUBJECT", "STATUS", "DAYS LEFT", "DUE", "EVENTS", "REQUESTED BY")
			for _, e := range all {
				left := "-"
				if e.DaysLeft != nil {
					left = fmt.Sprint(*e.DaysLeft)
				}
				p.row(e.ID, e.Subject, e.Status, left, e.DueOn, e.Preview.Events, e.RequestedBy)
			}
		})
	})
}

// Listings of requests.
const (
	defaultErasures = 100
	maxErasures     = 1000 // the most that the server answers at once
)

// erasuresByUrgency lists the open requests before the ended ones. It makes two calls, because
// the server lists by age: in one list, ended requests could displace the oldest open ones, which
// are the most urgent. more reports that not all open requests are listed.
func (s *session) erasuresByUrgency(ctx context.Context, states []string, limit int) (all []client.ErasureRequest, more bool, err error) {
	if len(states) == 0 {
		for _, state := range shredding.ErasureStates() {
			states = append(states, string(state))
		}
	}
	var open, ended []string
	for _, state := range states {
		if shredding.ErasureState(state).Final() {
			ended = append(ended, state)
		} else {
			open = append(open, state) // an unknown state too: the server refuses it
		}
	}
	all = []client.ErasureRequest{}
	if len(open) > 0 {
		list, err := s.ListErasureRequests(ctx, client.ListErasureRequestsParams{Status: strings.Join(open, ","), Limit: maxErasures})
		if err != nil {
			return nil, false, err
		}
		all = list.ErasureRequests
		more = len(all) > limit || len(all) == maxErasures
		slices.SortStableFunc(all, func(a, b client.ErasureRequest) int { return cmp.Compare(a.DueOn, b.DueOn) }) // ISO dates
		all = all[:min(len(all), limit)]
	}
	if rest := limit - len(all); rest > 0 && len(ended) > 0 {
		list, err := s.ListErasureRequests(ctx, client.ListErasureRequestsParams{Status: strings.Join(ended, ","), Limit: rest})
		if err != nil {
			return nil, false, err
		}
		for _, e := range list.ErasureRequests {
			if !slices.ContainsFunc(all, func(a client.ErasureRequest) bool { return a.ID == e.ID }) { // it ended between the two calls
				all = append(all, e)
			}
		}
	}
	return all, more, nil
}

// certificateCommand builds the command that fetches the certificate of an erasure or redaction.
func certificateCommand(noun, parent string, fetch func(*client.Client, context.Context, string, ...client.Option) (json.RawMessage, error)) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "certificate ID",
		Short: "Fetch the signed certificate of a completed " + noun,
		Long:  "The bytes are those that were signed; backbone verify-certificate checks them offline.",
		Example: "  " + parent + " certificate 01JQ8E6Z6G3V5T8C9N2M4K7R1P --out certificate.json\n" +
			"  " + parent + " certificate 01JQ8E6Z6G3V5T8C9N2M4K7R1P | less",
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&file, "out", "", "file to write (default: standard output)")
	cmd = serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		if _, err := fetch(s.Client, ctx, args[0], s.keep()); err != nil {
			return err
		}
		if file != "" {
			return os.WriteFile(file, s.document, 0o600)
		}
		_, err := s.out.Write(s.document) // the bytes must be those that were signed
		return err
	})
	cmd.Flags().Lookup("json").Hidden = true // it is JSON
	return cmd
}
