package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

func erasureCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "erasure",
		Short: "Erase the personal data of a person from history",
		Long: "An erasure destroys the keys that a person's values are sealed with. The events stay,\n" +
			"the chain of the log stays valid, and the values read [REDACTED] for ever. One person\n" +
			"requests, another approves.",
	}
	cmd.AddCommand(requestErasureCommand(), approveErasureCommand(), endErasureCommand("reject"), endErasureCommand("withdraw"),
		erasureStatusCommand(), listErasuresCommand(), erasureCertificateCommand(), replayCommand())
	return cmd
}

const waitHelp = "follow the request until it has ended or needs a new approval; exit code 1 unless it is completed"

func requestErasureCommand() *cobra.Command {
	var e NewErasure
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
	options := clientFlags(cmd)
	f.StringVar(&e.Basis, "basis", "", "gdpr_art_17, subject_request, retention_expired or court_order (required)")
	f.StringVar(&e.Reason, "reason", "", "why, for colleagues and auditors; no personal data (required)")
	f.StringSliceVar(&e.LegalEntities, "legal-entity", nil, "only in these legal entities (default: all that you may see)")
	f.StringVar(&e.DueOn, "due-on", "", "last day, as 2026-03-31 (default: in 30 days)")
	f.StringVar(&key, "idempotency-key", "", "makes the same call twice one request")
	f.BoolVar(&wait, "wait", false, waitHelp)
	for _, name := range []string{"basis", "reason"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e.Subject = args[0]
		return RequestErasure(cmd.Context(), options(), wait, e, key)
	}
	return cmd
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
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, waitHelp)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ApproveErasure(cmd.Context(), options(), wait, args[0])
	}
	return cmd
}

// endErasureCommand is reject, for the second person, and withdraw, for the first.
func endErasureCommand(verb string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     verb + " ID",
		Short:   map[string]string{"reject": "End a request, as the second person", "withdraw": "Take a request back before it begins"}[verb],
		Example: "  backbone erasure " + verb + " 01JQ8E6Z6G3V5T8C9N2M4K7R1P --reason \"Still employed\"",
		Args:    cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why; no personal data (required)")
	_ = cmd.MarkFlagRequired("reason") // the flag exists
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if verb == "reject" {
			return RejectErasure(cmd.Context(), options(), args[0], reason)
		}
		return WithdrawErasure(cmd.Context(), options(), args[0], reason)
	}
	return cmd
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
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, waitHelp)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ErasureStatus(cmd.Context(), options(), wait, args[0])
	}
	return cmd
}

func listErasuresCommand() *cobra.Command {
	var l ErasureList
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List requests with the days left, the most urgent first",
		Long:  "Open requests come first, whatever their age; those that have ended fill up the list.",
		Example: "  backbone erasure list\n" +
			"  backbone erasure list --status previewed,approved",
		Args: cobra.NoArgs,
	}
	options := clientFlags(cmd)
	cmd.Flags().StringSliceVar(&l.Statuses, "status", nil, "only requests in these states")
	cmd.Flags().IntVar(&l.Limit, "limit", 0, "at most so many, 1 to 1000 (default 100)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return ListErasures(cmd.Context(), options(), l) }
	return cmd
}

func erasureCertificateCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "certificate ID",
		Short: "Fetch the signed certificate of a completed erasure",
		Long:  "The bytes are those that were signed; backbone verify-certificate checks them offline.",
		Example: "  backbone erasure certificate 01JQ8E6Z6G3V5T8C9N2M4K7R1P --out certificate.json\n" +
			"  backbone erasure certificate 01JQ8E6Z6G3V5T8C9N2M4K7R1P | less",
		Args: cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.Flags().StringVar(&file, "out", "", "file to write (default: standard output)")
	cmd.Flags().Lookup("json").Hidden = true // it is JSON
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		certificate, err := ErasureCertificate(cmd.Context(), options(), args[0])
		if err != nil {
			return err
		}
		if file != "" {
			return os.WriteFile(file, certificate, 0o600)
		}
		_, err = cmd.OutOrStdout().Write(certificate)
		return err
	}
	return cmd
}

// NewErasure is what `backbone erasure request` asks for.
type NewErasure = httpclient.NewErasure

// RequestErasure requests an erasure and prints it. This and the following commands
// print the request that comes of them; with wait they follow it to its end first.
//
//	erasure.ended          FailedPrecondition: the request that was made or followed
//	                       ended and nothing was erased
//	erasure.scope_changed  FailedPrecondition: a request that was followed needs a new
//	                       approval
func RequestErasure(ctx context.Context, o ClientOptions, wait bool, e NewErasure, idempotencyKey string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	made, err := client.RequestErasure(ctx, e, idempotencyKey)
	if err != nil {
		return err
	}
	if err := o.showErasure(ctx, client, wait, made); err != nil || wait {
		return err
	}
	if made.Status == string(shredding.ErasureRefused) {
		return endedWithout(made)
	}
	return nil
}

// ApproveErasure says what a request concerns and approves that; if it comes to
// concern something else before an attempt gets through, nothing is approved.
func ApproveErasure(ctx context.Context, o ClientOptions, wait bool, id string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	seen, err := client.Erasure(ctx, id)
	if err != nil {
		return err
	}
	switch shredding.ErasureState(seen.Status) {
	case shredding.ErasureRequested: // without a scope, whatever is counted next would be approved
		return fault.New(fault.FailedPrecondition, "erasure.move_refused", "it is not counted yet what the request concerns; try again in a moment")
	case shredding.ErasurePreviewed:
		sayApproval(o.Err, seen)
	}
	approved, err := client.ApproveErasure(ctx, id, seen.Preview.Scope)
	if err != nil {
		return err
	}
	return o.showErasure(ctx, client, wait, approved)
}

// sayApproval says on one line what is about to be approved.
func sayApproval(out io.Writer, e httpclient.Erasure) {
	classes := make([]string, len(e.Classes))
	for i, c := range e.Classes {
		classes[i] = c.Class + " " + fate(e, c)
	}
	fmt.Fprintf(out, "Approving what it concerns now: %s in %s, %s, %s; %s\n", e.Subject, strings.Join(e.LegalEntities, ", "),
		counted(e.Preview.Events, "event"), counted(e.Preview.Intents, "intent"), strings.Join(classes, ", "))
	if unknown(e) {
		fmt.Fprintln(out, unknownWarning)
	}
}

// RejectErasure ends a request as the second person.
func RejectErasure(ctx context.Context, o ClientOptions, id, reason string) error {
	return askErasure(ctx, o, false, func(c *httpclient.Client) (httpclient.Erasure, error) { return c.RejectErasure(ctx, id, reason) })
}

// WithdrawErasure takes a request back.
func WithdrawErasure(ctx context.Context, o ClientOptions, id, reason string) error {
	return askErasure(ctx, o, false, func(c *httpclient.Client) (httpclient.Erasure, error) { return c.WithdrawErasure(ctx, id, reason) })
}

// ErasureStatus reads a request.
func ErasureStatus(ctx context.Context, o ClientOptions, wait bool, id string) error {
	return askErasure(ctx, o, wait, func(c *httpclient.Client) (httpclient.Erasure, error) { return c.Erasure(ctx, id) })
}

func askErasure(ctx context.Context, o ClientOptions, wait bool, do func(*httpclient.Client) (httpclient.Erasure, error)) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	e, err := do(client)
	if err != nil {
		return err
	}
	return o.showErasure(ctx, client, wait, e)
}

// showErasure prints a request, with wait what has become of it.
func (o ClientOptions) showErasure(ctx context.Context, client *httpclient.Client, wait bool, e httpclient.Erasure) error {
	var err error
	if wait {
		if e, err = followErasure(ctx, client, o, e); err != nil {
			return err
		}
	}
	if o.JSON {
		err = o.json(e)
	} else {
		err = printErasure(o.Out, e)
	}
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

// endedWithout is the fault for a request that ended and erased nothing.
func endedWithout(e httpclient.Erasure) error {
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

// Waits between two looks at a request under way.
const (
	firstLook   = 200 * time.Millisecond
	longestLook = 2 * time.Second
)

// followErasure reads a request until it has ended, or until it waits for an approval
// for the second time: the first comes from whoever this waits for, but nobody knows
// of the second.
func followErasure(ctx context.Context, client *httpclient.Client, o ClientOptions, e httpclient.Erasure) (httpclient.Erasure, error) {
	if waitsForApproval(e) {
		fmt.Fprintf(o.Err, "Erasure %s waits until another person runs  backbone erasure approve %s\n", e.ID, e.ID)
	}
	shown := newProgress(o.Err, o.Terminal)
	pause := time.NewTimer(0)
	defer pause.Stop()
	scope, approved := "", false
	for wait := firstLook; ; wait = min(2*wait, longestLook) {
		total, done := len(e.Steps), 0
		for _, s := range e.Steps {
			if s.Done {
				done++
			}
		}
		if shredding.ErasureState(e.Status).Final() {
			shown.report(e.Status, total, total)
			return e, nil
		}
		if !waitsForApproval(e) {
			approved = true
		} else if approved || scope != "" && e.Preview.Scope != scope { // or it was approved between two looks
			shown.report("waits for a new approval", total, total) // a bar ends only when it is full
			return e, nil
		}
		scope = e.Preview.Scope
		shown.report(stepTitle(e), done, max(total, done+1)) // never full before the end
		pause.Reset(wait)
		select {
		case <-ctx.Done():
			return e, ctx.Err()
		case <-pause.C:
		}
		var err error
		if e, err = client.Erasure(ctx, e.ID); err != nil {
			return e, err
		}
	}
}

func waitsForApproval(e httpclient.Erasure) bool {
	state := shredding.ErasureState(e.Status)
	return state == shredding.ErasureRequested || state == shredding.ErasurePreviewed
}

func stepTitle(e httpclient.Erasure) string {
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

func printErasure(out io.Writer, e httpclient.Erasure) error {
	fmt.Fprintf(out, "Erasure %s is %s\n", e.ID, e.Status)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("subject", "%s in %s", e.Subject, strings.Join(e.LegalEntities, ", "))
	row("basis", "%s: %s", e.Basis, e.Reason)
	row("requested", "%s by %s", e.RequestedAt.UTC().Format(minute), e.RequestedBy)
	row("due", "%s%s", e.DueOn, daysLeft(e))
	if e.ApprovedBy != "" {
		row("approved", "%s by %s", e.ApprovedAt.UTC().Format(minute), e.ApprovedBy)
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
		row("class "+c.Class, "%s", fate(e, c))
	}
	for _, s := range e.Steps {
		if !s.Done && s.Error != "" {
			row("trouble", "the step after %s failed %s: %s", e.Status, counted(s.Attempts, "time"), s.Error)
		}
	}
	if !e.DestroyedAt.IsZero() {
		row("keys destroyed", "%s", e.DestroyedAt.UTC().Format(minute))
	}
	if !e.CompletedAt.IsZero() {
		row("completed", "%s", e.CompletedAt.UTC().Format(minute))
	}
	if e.EndReason != "" {
		row("ended", "%s", e.EndReason)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch shredding.ErasureState(e.Status) {
	case shredding.ErasurePreviewed:
		if unknown(e) {
			fmt.Fprintln(out, unknownWarning)
		}
		fmt.Fprintf(out, "Next: another person runs  backbone erasure approve %s\n", e.ID)
	case shredding.ErasureCompleted:
		fmt.Fprintf(out, "Next: backbone erasure certificate %s\n", e.ID)
	}
	return nil
}

const unknownWarning = "Warning: nothing is known about this subject; check the id: approving it keeps the id from ever being used"

// unknown reports whether a request concerns nothing that there is.
func unknown(e httpclient.Erasure) bool {
	return e.Preview.Events == 0 && e.Preview.Intents == 0 && len(e.Preview.Projections) == 0
}

func daysLeft(e httpclient.Erasure) string {
	switch {
	case e.DaysLeft == nil:
		return ""
	case *e.DaysLeft < 0:
		return fmt.Sprintf(", %s over", counted(-*e.DaysLeft, "day"))
	default:
		return fmt.Sprintf(", %s left", counted(*e.DaysLeft, "day"))
	}
}

// fate words what happens, or has happened, to a class.
func fate(e httpclient.Erasure, c httpclient.ErasureClass) string {
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

// ErasureList are the flags of `backbone erasure list`.
type ErasureList struct {
	Statuses []string
	Limit    int
}

// Listings of requests.
const (
	defaultErasures = 100
	mostErasures    = 1000 // the server gives no more at once
)

// ListErasures prints requests with the days left, the most urgent first and those
// that have ended last.
func ListErasures(ctx context.Context, o ClientOptions, l ErasureList) error {
	if l.Limit < 0 || l.Limit > mostErasures {
		return fault.New(fault.Invalid, "request.parameter_invalid", "a list has 1 to %d requests; correct --limit", mostErasures).WithField("limit")
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	all, left, err := erasuresByUrgency(ctx, client, l.Statuses, cmp.Or(l.Limit, defaultErasures))
	if err != nil {
		return err
	}
	if left {
		fmt.Fprintln(o.Err, "There are more open requests than are listed; raise --limit, or name states with --status.")
	}
	if o.JSON {
		return o.json(map[string]any{"erasure_requests": all})
	}
	if len(all) == 0 {
		fmt.Fprintln(o.Out, "There are no such erasure requests.")
		return nil
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSUBJECT\tSTATUS\tDAYS LEFT\tDUE\tEVENTS\tREQUESTED BY")
	for _, e := range all {
		left := "-"
		if e.DaysLeft != nil {
			left = fmt.Sprint(*e.DaysLeft)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", e.ID, e.Subject, e.Status, left, e.DueOn, e.Preview.Events, e.RequestedBy)
	}
	return table.Flush()
}

// erasuresByUrgency asks for the open requests apart: the server lists by age, and
// requests that have ended would crowd the oldest open ones, which are the most
// urgent, out. left: not all of the open ones are listed.
func erasuresByUrgency(ctx context.Context, client *httpclient.Client, states []string, limit int) (all []httpclient.Erasure, left bool, err error) {
	if len(states) == 0 {
		for _, s := range shredding.ErasureStates() {
			states = append(states, string(s))
		}
	}
	var open, ended []string
	for _, s := range states {
		if shredding.ErasureState(s).Final() {
			ended = append(ended, s)
		} else {
			open = append(open, s) // also one that does not exist: the server says so
		}
	}
	all = []httpclient.Erasure{}
	if len(open) > 0 {
		if all, err = client.Erasures(ctx, open, mostErasures); err != nil {
			return nil, false, err
		}
		left = len(all) > limit || len(all) == mostErasures
		slices.SortStableFunc(all, func(a, b httpclient.Erasure) int { return cmp.Compare(a.DueOn, b.DueOn) }) // ISO dates
		all = all[:min(len(all), limit)]
	}
	if rest := limit - len(all); rest > 0 && len(ended) > 0 {
		more, err := client.Erasures(ctx, ended, rest)
		if err != nil {
			return nil, false, err
		}
		for _, e := range more {
			if !slices.ContainsFunc(all, func(a httpclient.Erasure) bool { return a.ID == e.ID }) { // it ended between the two looks
				all = append(all, e)
			}
		}
	}
	return all, left, nil
}

// ErasureCertificate gives a certificate's bytes.
func ErasureCertificate(ctx context.Context, o ClientOptions, id string) ([]byte, error) {
	client, err := o.connect()
	if err != nil {
		return nil, err
	}
	return client.ErasureCertificate(ctx, id)
}
