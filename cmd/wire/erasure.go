package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// ClientOptions are the flags of commands that talk to a server.
type ClientOptions struct {
	Server   string
	Token    string
	JSON     bool // print the server's answer
	Out      io.Writer
	Err      io.Writer // progress
	Terminal bool      // Err is one
}

func (o ClientOptions) connect() (*httpclient.Client, error) {
	if o.Token == "" {
		return nil, fault.New(fault.Unauthenticated, "client.token_missing", "no access token; set BACKBONE_TOKEN or --token")
	}
	return httpclient.New(httpclient.Config{Server: o.Server, Token: o.Token})
}

func (o ClientOptions) json(v any) error {
	encoder := json.NewEncoder(o.Out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// NewErasure is what `backbone erasure request` asks for.
type NewErasure = httpclient.NewErasure

// RequestErasure requests an erasure and prints it. This and the following commands
// print the request that comes of them; with wait they follow it to its end first,
// and end with the fault erasure.ended unless it is completed.
func RequestErasure(ctx context.Context, o ClientOptions, wait bool, e NewErasure, idempotencyKey string) error {
	return askErasure(ctx, o, wait, func(c *httpclient.Client) (httpclient.Erasure, error) {
		return c.RequestErasure(ctx, e, idempotencyKey)
	})
}

// ApproveErasure approves a request as it stands at the call; if it comes to concern
// something else before an attempt gets through, nothing is approved.
func ApproveErasure(ctx context.Context, o ClientOptions, wait bool, id string) error {
	return askErasure(ctx, o, wait, func(c *httpclient.Client) (httpclient.Erasure, error) {
		seen, err := c.Erasure(ctx, id)
		if err != nil {
			return seen, err
		}
		return c.ApproveErasure(ctx, id, seen.Preview.Scope)
	})
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
	if err == nil && wait && e.Status != string(shredding.ErasureCompleted) {
		return fault.New(fault.FailedPrecondition, "erasure.ended", "the request ended as %s and nothing was erased; read its end_reason", e.Status)
	}
	return err
}

// Waits between two looks at a request under way.
const (
	firstLook   = 200 * time.Millisecond
	longestLook = 2 * time.Second
)

// followErasure reads a request until it has ended.
func followErasure(ctx context.Context, client *httpclient.Client, o ClientOptions, e httpclient.Erasure) (httpclient.Erasure, error) {
	shown := newProgress(o.Err, o.Terminal)
	pause := time.NewTimer(0)
	defer pause.Stop()
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

func stepTitle(e httpclient.Erasure) string {
	if e.Status == string(shredding.ErasurePreviewed) {
		return "waits for approval"
	}
	for _, s := range e.Steps {
		if !s.Done && s.Error != "" {
			return fmt.Sprintf("%s, next step failed %d times (%s)", e.Status, s.Attempts, s.Error)
		}
	}
	return e.Status
}

const minute = "2006-01-02 15:04Z"

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
	row("concerns", "%d events, %d intents", e.Preview.Events, e.Preview.Intents)
	for _, t := range e.Preview.Types {
		kind := "events"
		if t.Intent {
			kind = "intents"
		}
		row("", "%s %s, %d %s with %d values", t.LegalEntity, t.Type, t.Events, kind, t.Fields)
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
			row("trouble", "the step after %s failed %d times: %s", e.Status, s.Attempts, s.Error)
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
		fmt.Fprintf(out, "Next: another person runs  backbone erasure approve %s\n", e.ID)
	case shredding.ErasureCompleted:
		fmt.Fprintf(out, "Next: backbone erasure certificate %s\n", e.ID)
	}
	return nil
}

func daysLeft(e httpclient.Erasure) string {
	switch {
	case e.DaysLeft == nil:
		return ""
	case *e.DaysLeft < 0:
		return fmt.Sprintf(", %d days over", -*e.DaysLeft)
	default:
		return fmt.Sprintf(", %d days left", *e.DaysLeft)
	}
}

// fate words what happens, or has happened, to a class.
func fate(e httpclient.Erasure, c httpclient.ErasureClass) string {
	switch {
	case c.Erased && e.DestroyedAt.IsZero():
		return "to be erased"
	case c.Erased:
		return "erased"
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

// ListErasures prints requests with the days left, the most urgent first.
func ListErasures(ctx context.Context, o ClientOptions, l ErasureList) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	all, err := client.Erasures(ctx, l.Statuses, l.Limit)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"erasure_requests": all})
	}
	if len(all) == 0 {
		fmt.Fprintln(o.Out, "There are no such erasure requests.")
		return nil
	}
	slices.SortStableFunc(all, func(a, b httpclient.Erasure) int {
		switch {
		case a.DaysLeft != nil && b.DaysLeft != nil:
			return *a.DaysLeft - *b.DaysLeft
		case a.DaysLeft != nil:
			return -1
		case b.DaysLeft != nil:
			return 1
		default:
			return 0
		}
	})
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

// ErasureCertificate gives a certificate's bytes.
func ErasureCertificate(ctx context.Context, o ClientOptions, id string) ([]byte, error) {
	client, err := o.connect()
	if err != nil {
		return nil, err
	}
	return client.ErasureCertificate(ctx, id)
}

// NewHold is what `backbone holds place` asks for.
type NewHold = httpclient.NewHold

// PlaceHold places legal holds and prints them.
func PlaceHold(ctx context.Context, o ClientOptions, h NewHold) error {
	return showHolds(o, func(c *httpclient.Client) ([]httpclient.Hold, error) { return c.PlaceHold(ctx, h) })
}

// ReleaseHold ends a legal hold and prints it.
func ReleaseHold(ctx context.Context, o ClientOptions, id string) error {
	return showHolds(o, func(c *httpclient.Client) ([]httpclient.Hold, error) {
		h, err := c.ReleaseHold(ctx, id)
		return []httpclient.Hold{h}, err
	})
}

// ListHolds prints the legal holds in force on a person.
func ListHolds(ctx context.Context, o ClientOptions, subject string) error {
	return showHolds(o, func(c *httpclient.Client) ([]httpclient.Hold, error) { return c.Holds(ctx, subject) })
}

func showHolds(o ClientOptions, do func(*httpclient.Client) ([]httpclient.Hold, error)) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	all, err := do(client)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"legal_holds": all})
	}
	if len(all) == 0 {
		fmt.Fprintln(o.Out, "There is no legal hold in force.")
		return nil
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSUBJECT\tLEGAL ENTITY\tUNTIL\tPLACED BY\tRELEASED BY\tREASON")
	for _, h := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.ID, h.Subject, cmp.Or(h.LegalEntity, "all"), cmp.Or(h.Until, "released"), h.PlacedBy, cmp.Or(h.ReleasedBy, "-"), h.Reason)
	}
	return table.Flush()
}
