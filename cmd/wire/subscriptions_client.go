package wire

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

// NewSubscription is what `backbone subscriptions create` asks for.
type NewSubscription = httpclient.NewSubscription

// ResetPosition is where `backbone subscriptions reset` moves to.
type ResetPosition = httpclient.ResetSubscription

// ParkedSelection is what `backbone subscriptions replay` and `discard` settle.
type ParkedSelection = httpclient.SettleParked

// subscriptionMinute is how the tables show times.
const subscriptionMinute = "2006-01-02 15:04"

// ListSubscriptions is `backbone subscriptions list`.
func ListSubscriptions(ctx context.Context, o ClientOptions) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	all, err := client.Subscriptions(ctx)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"subscriptions": all})
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSUBSCRIBER\tSTATUS\tORDER\tSTRATEGY\tOWNER\tFAILURES\tLAST FAILURE")
	for _, s := range all {
		fmt.Fprintf(table, "%s\t%s %s\t%s\t%s\t%s\t%s\t%d\t%s\n", s.ID, s.SubscriberType, s.SubscriberID, s.Status,
			s.Settings.PartitionBy, s.Settings.ConsumerStrategy, s.Owner, s.FailuresInARow, cmp.Or(s.LastFailureCode, "-"))
	}
	return table.Flush()
}

// ShowSubscription is `backbone subscriptions show`.
func ShowSubscription(ctx context.Context, o ClientOptions, id string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	s, err := client.Subscription(ctx, id)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(s)
	}
	fmt.Fprintf(o.Out, "%s (%s %s) is %s: %d events behind, the oldest for %s; %d in flight, %d waiting, %d parked\n", s.Subscription.ID,
		s.Subscription.SubscriberType, s.Subscription.SubscriberID, s.Subscription.Status, s.LagEvents,
		time.Duration(s.LagSeconds*float64(time.Second)).Round(time.Second), s.InFlight, s.Waiting, s.Parked)
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LEGAL ENTITY\tREAD\tCHECKPOINT\tHEAD\tLAG\tIN FLIGHT\tWAITING\tPARKED\tMOVED")
	for _, c := range s.Cursors {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", c.LegalEntity, c.ReadThrough, c.Checkpoint, c.Head, c.LagEvents, c.InFlight, c.Waiting, c.Parked,
			c.UpdatedAt.UTC().Format(subscriptionMinute))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	var counts []string
	for _, name := range slices.Sorted(maps.Keys(s.Statistics)) {
		counts = append(counts, fmt.Sprintf("%s %d", strings.ReplaceAll(name, "_", " "), s.Statistics[name]))
	}
	fmt.Fprintln(o.Out, "So far:", strings.Join(counts, ", "))
	return nil
}

// CreateSubscription is `backbone subscriptions create`.
func CreateSubscription(ctx context.Context, o ClientOptions, s NewSubscription) error {
	return o.turn(func(c *httpclient.Client) (httpclient.Subscription, error) { return c.CreateSubscription(ctx, s) })
}

// PauseSubscription is `backbone subscriptions pause`.
func PauseSubscription(ctx context.Context, o ClientOptions, id string) error {
	return o.turn(func(c *httpclient.Client) (httpclient.Subscription, error) { return c.PauseSubscription(ctx, id) })
}

// ResumeSubscription is `backbone subscriptions resume`.
func ResumeSubscription(ctx context.Context, o ClientOptions, id string) error {
	return o.turn(func(c *httpclient.Client) (httpclient.Subscription, error) { return c.ResumeSubscription(ctx, id) })
}

// ResetSubscription is `backbone subscriptions reset`.
func ResetSubscription(ctx context.Context, o ClientOptions, id string, to ResetPosition) error {
	return o.turn(func(c *httpclient.Client) (httpclient.Subscription, error) { return c.ResetSubscription(ctx, id, to) })
}

func (o ClientOptions) turn(do func(*httpclient.Client) (httpclient.Subscription, error)) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	s, err := do(client)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(s)
	}
	fmt.Fprintf(o.Out, "Subscription %s is %s.\n", s.ID, s.Status)
	for _, w := range s.Warnings {
		fmt.Fprintf(o.Out, "Warning %s: %s.\n", w.Code, w.Detail)
	}
	return nil
}

// DeleteSubscription is `backbone subscriptions delete`.
func DeleteSubscription(ctx context.Context, o ClientOptions, id string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	if err := client.DeleteSubscription(ctx, id); err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"id": id, "deleted": true})
	}
	fmt.Fprintf(o.Out, "Subscription %s is deleted.\n", id)
	return nil
}

// ParkedOptions are the flags of `backbone subscriptions parked`.
type ParkedOptions struct {
	EventID string // "": a list
	Groups  bool
	Code    string
	Cursor  string
	Limit   int
}

// ShowParked is `backbone subscriptions parked`.
func ShowParked(ctx context.Context, o ClientOptions, id string, p ParkedOptions) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	if p.EventID != "" {
		m, err := client.ParkedMessage(ctx, id, p.EventID)
		if err != nil {
			return err
		}
		return o.json(m)
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	if p.Groups {
		groups, err := client.ParkedGroups(ctx, id)
		if err != nil {
			return err
		}
		if o.JSON {
			return o.json(map[string]any{"groups": groups})
		}
		fmt.Fprintln(table, "CODE\tMESSAGES\tFIRST\tLAST")
		for _, g := range groups {
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", g.Code, g.Messages, g.FirstParkedAt.UTC().Format(subscriptionMinute), g.LastParkedAt.UTC().Format(subscriptionMinute))
		}
		return table.Flush()
	}
	page, next, err := client.Parked(ctx, id, p.Code, p.Cursor, p.Limit)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"messages": page, "next_cursor": next})
	}
	fmt.Fprintln(table, "LEGAL ENTITY\tSEQUENCE\tEVENT\tCODE\tATTEMPTS\tPARKED\tREASON")
	for _, m := range page {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", m.LegalEntity, m.Sequence, m.EventID, m.Code, m.Attempts, m.ParkedAt.UTC().Format(subscriptionMinute), cmp.Or(m.Detail, "-"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintln(o.Out, "There are more; go on with --cursor", next)
	}
	return nil
}

// SettleParked is `backbone subscriptions replay` and `discard`. With All it goes on
// step by step until nothing is left.
func SettleParked(ctx context.Context, o ClientOptions, id, verb string, s ParkedSelection) error {
	if s.All == (len(s.EventIDs) > 0) {
		return fault.New(fault.Invalid, "cli.selection_missing", "name event ids, or --all with --code to narrow it, and not both")
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	step := client.ReplayParked
	if verb == "discard" {
		step = client.DiscardParked
	}
	total := 0
	for {
		n, more, err := step(ctx, id, s)
		if err != nil {
			return err
		}
		total += n
		if !more || n == 0 {
			break
		}
	}
	if o.JSON {
		return o.json(map[string]any{"messages": total})
	}
	fmt.Fprintf(o.Out, "%s %s.\n", counted(total, "message"), map[string]string{"replay": "handed out again", "discard": "given up"}[verb])
	return nil
}

// subscriptionDeadLetters are the dead letters of subscriptions as those of other
// readers are listed: on the first page, up to the limit for each. Who may not look
// after subscriptions sees none.
func subscriptionDeadLetters(ctx context.Context, c *httpclient.Client, f httpclient.DeadLetterFilter) ([]httpclient.DeadLetter, error) {
	const kind, waiting = "subscription", "waiting"
	if f.Cursor != "" || f.Kind != "" && f.Kind != kind || len(f.Statuses) > 0 && !slices.Contains(f.Statuses, waiting) {
		return nil, nil
	}
	all, err := c.Subscriptions(ctx)
	if fault.KindOf(err) == fault.Forbidden {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []httpclient.DeadLetter
	for _, s := range all {
		if f.Name != "" && f.Name != s.ID {
			continue
		}
		parked, _, err := c.Parked(ctx, s.ID, "", "", f.Limit)
		if err != nil && fault.KindOf(err) != fault.NotFound { // deleted meanwhile
			return nil, err
		}
		for _, m := range parked {
			out = append(out, httpclient.DeadLetter{
				Kind: kind, Name: s.ID, LegalEntity: m.LegalEntity, Sequence: m.Sequence, EventID: m.EventID, Code: m.Code, Detail: m.Detail,
				Attempts: m.Attempts, FirstFailedAt: m.ParkedAt, LastFailedAt: m.ParkedAt, Status: waiting,
			})
		}
	}
	return out, nil
}
