package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

func subscriptionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "subscriptions",
		Short: "Look after persistent subscriptions and their dead letters",
		Long: "A subscription remembers what its subscriber was handed, what it has dealt with, and what\n" +
			"it could not deal with. Its owner takes the events over the API; operators see that it moves.",
	}
	cmd.AddCommand(listSubscriptionsCommand(), showSubscriptionCommand(), createSubscriptionCommand(), turnSubscriptionCommand("pause"), turnSubscriptionCommand("resume"),
		resetSubscriptionCommand(), deleteSubscriptionCommand(), parkedCommand(), settleParkedCommand("replay"), settleParkedCommand("discard"))
	return cmd
}

func listSubscriptionsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List subscriptions", Example: "  backbone subscriptions list --json", Args: cobra.NoArgs}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return ListSubscriptions(cmd.Context(), options()) }
	return cmd
}

func showSubscriptionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show how far a subscription is", Example: "  backbone subscriptions show vendor-mirror", Args: cobra.ExactArgs(1)}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ShowSubscription(cmd.Context(), options(), args[0])
	}
	return cmd
}

func createSubscriptionCommand() *cobra.Command {
	var s NewSubscription
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Make a subscription; whoever makes it owns it",
		Example: "  backbone subscriptions create vendor-mirror --subscriber service:crm --type ap.vendor.registered\n" +
			"  backbone subscriptions create all-of-ap --subscriber agent:a-7 --module ap --order stream --start end\n" +
			"  backbone subscriptions create after-feed --subscriber service:crm --cursor \"$(cat feed.cursor)\"",
		Args: cobra.ExactArgs(1),
	}
	var subscriber string
	f := cmd.Flags()
	options := clientFlags(cmd)
	f.StringVar(&subscriber, "subscriber", "", "who takes the events, as type:id; agent, rule, projection, webhook or service (required)")
	f.StringSliceVar(&s.EventTypes, "type", nil, "only events of these types")
	f.StringSliceVar(&s.Modules, "module", nil, "only events of these modules")
	f.StringSliceVar(&s.LegalEntities, "legal-entity", nil, "only these legal entities (default: all that the owner may read, also later ones)")
	f.StringVar(&s.Settings.PartitionBy, "order", "", "legal_entity, none, stream, correlation, entity:<type> or a path such as $.order.id (default legal_entity)")
	f.StringVar(&s.Settings.ConsumerStrategy, "strategy", "", "round_robin or pinned (default round_robin)")
	f.StringVar(&s.Settings.StartFrom, "start", "", "beginning or end (default beginning)")
	f.StringVar(&s.Settings.StartCursor, "cursor", "", "begin where a feed of all legal entities has come to")
	cmd.MarkFlagsMutuallyExclusive("start", "cursor")
	_ = cmd.MarkFlagRequired("subscriber") // the flag exists
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind, id, found := strings.Cut(subscriber, ":")
		if !found {
			return fault.New(fault.Invalid, "cli.subscriber_invalid", "--subscriber is type:id, such as service:crm; correct it")
		}
		s.ID, s.SubscriberType, s.SubscriberID = args[0], kind, id
		if s.Settings.StartCursor != "" {
			s.Settings.StartFrom = "cursor"
		}
		return CreateSubscription(cmd.Context(), options(), s)
	}
	return cmd
}

func turnSubscriptionCommand(verb string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     verb + " ID",
		Short:   map[string]string{"pause": "Stop handing out", "resume": "Go on, also after the breaker opened"}[verb],
		Example: "  backbone subscriptions " + verb + " vendor-mirror",
		Args:    cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if verb == "pause" {
			return PauseSubscription(cmd.Context(), options(), args[0])
		}
		return ResumeSubscription(cmd.Context(), options(), args[0])
	}
	return cmd
}

func resetSubscriptionCommand() *cobra.Command {
	var to, at, cursor string
	var positions map[string]string
	cmd := &cobra.Command{
		Use:   "reset ID",
		Short: "Move a subscription to any position",
		Long: "What is open is dropped, what follows the position is handed out again, dead letters\n" +
			"before it are kept.",
		Example: "  backbone subscriptions reset vendor-mirror --to beginning\n" +
			"  backbone subscriptions reset vendor-mirror --at USMF=1200,DEMF=1\n" +
			"  backbone subscriptions reset vendor-mirror --time 2026-03-31T12:00:00Z\n" +
			"  backbone subscriptions reset vendor-mirror --cursor \"$(cat feed.cursor)\"",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	options := clientFlags(cmd)
	f.StringVar(&to, "to", "", "beginning or end")
	f.StringToStringVar(&positions, "at", nil, "by legal entity the sequence of the first event to hand out; others stay")
	f.StringVar(&at, "time", "", "begin with what was recorded at this time")
	f.StringVar(&cursor, "cursor", "", "go on where a feed of all legal entities has come to")
	cmd.MarkFlagsOneRequired("to", "at", "time", "cursor")
	cmd.MarkFlagsMutuallyExclusive("to", "at", "time", "cursor")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r := ResetPosition{To: to, Positions: positions, Time: at, Cursor: cursor}
		switch {
		case len(positions) > 0:
			r.To = "position"
		case at != "":
			r.To = "time"
		case cursor != "":
			r.To = "cursor"
		}
		return ResetSubscription(cmd.Context(), options(), args[0], r)
	}
	return cmd
}

func deleteSubscriptionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete ID", Short: "Delete a subscription with all that is open and parked",
		Example: "  backbone subscriptions delete vendor-mirror", Args: cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return DeleteSubscription(cmd.Context(), options(), args[0])
	}
	return cmd
}

func parkedCommand() *cobra.Command {
	var p ParkedOptions
	cmd := &cobra.Command{
		Use:   "parked ID [EVENT]",
		Short: "List a subscription's dead letters, count them by failure, or inspect one",
		Example: "  backbone subscriptions parked vendor-mirror --groups\n" +
			"  backbone subscriptions parked vendor-mirror --code crm.unavailable\n" +
			"  backbone subscriptions parked vendor-mirror 01JWZX3V9K5T7Q8R2M4N6P0ABC",
		Args: cobra.RangeArgs(1, 2),
	}
	f := cmd.Flags()
	options := clientFlags(cmd)
	f.BoolVar(&p.Groups, "groups", false, "count by failure")
	f.StringVar(&p.Code, "code", "", "only those with this code")
	f.StringVar(&p.Cursor, "cursor", "", "go on after an earlier page")
	f.IntVar(&p.Limit, "limit", 100, "at most so many")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 {
			p.EventID = args[1]
		}
		return ShowParked(cmd.Context(), options(), args[0], p)
	}
	return cmd
}

func settleParkedCommand(verb string) *cobra.Command {
	var s ParkedSelection
	cmd := &cobra.Command{
		Use:   verb + " ID [EVENT...]",
		Short: map[string]string{"replay": "Hand dead letters out again", "discard": "Give dead letters up, for a reason that is kept"}[verb],
		Example: "  backbone subscriptions " + verb + " vendor-mirror 01JWZX3V9K5T7Q8R2M4N6P0ABC --reason \"Corrected by hand\"\n" +
			"  backbone subscriptions " + verb + " vendor-mirror --all --code crm.unavailable --reason \"The CRM is back\"",
		Args: cobra.MinimumNArgs(1),
	}
	f := cmd.Flags()
	options := clientFlags(cmd)
	f.BoolVar(&s.All, "all", false, "all of them, step by step")
	f.StringVar(&s.Code, "code", "", "with --all, only those with this code")
	f.StringVar(&s.LegalEntity, "legal-entity", "", "only those of this legal entity")
	f.StringVar(&s.Reason, "reason", "", "why; no personal data")
	f.IntVar(&s.Limit, "step", 100, "messages of one step, 1 to 1000")
	if verb == "discard" {
		_ = cmd.MarkFlagRequired("reason") // the flag exists
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.EventIDs = args[1:]
		return SettleParked(cmd.Context(), options(), args[0], verb, s)
	}
	return cmd
}

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
