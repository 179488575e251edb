package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

func subscriptionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "subscriptions",
		Short: "Operate persistent subscriptions and their dead letters",
		Long: "A subscription records which events its subscriber has received, processed and failed to\n" +
			"process. Its owner receives the events over the API; operators watch its progress.",
	}
	cmd.AddCommand(listSubscriptionsCommand(), showSubscriptionCommand(), createSubscriptionCommand(),
		changeSubscriptionCommand("pause", "Stop delivering", (*client.Client).PauseSubscription),
		changeSubscriptionCommand("resume", "Resume delivering, also after the circuit breaker opened", (*client.Client).ResumeSubscription),
		resetSubscriptionCommand(), deleteSubscriptionCommand(), parkedCommand(),
		settleParkedCommand("replay", "Deliver dead letters again", "queued for delivery again", (*client.Client).ReplayParkedMessages),
		settleParkedCommand("discard", "Discard dead letters, for a reason that is kept", "discarded", (*client.Client).DiscardParkedMessages))
	return cmd
}

func listSubscriptionsCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use: "list", Short: "List subscriptions", Example: "  backbone subscriptions list --json", Args: cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		all, err := s.ListSubscriptions(ctx, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			p.row("ID", "SUBSCRIBER", "STATUS", "ORDER", "STRATEGY", "OWNER", "FAILURES", "LAST FAILURE")
			for _, v := range all.Subscriptions {
				p.row(v.ID, v.SubscriberType+" "+v.SubscriberID, v.Status, v.Settings.PartitionBy, v.Settings.ConsumerStrategy, v.Owner,
					v.FailuresInARow, cmp.Or(v.LastFailureCode, "-"))
			}
		})
	})
}

func showSubscriptionCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use: "show ID", Short: "Show how far a subscription is", Example: "  backbone subscriptions show vendor-mirror", Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, s *session, args []string) error {
		v, err := s.GetSubscription(ctx, args[0], s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			lag, _ := v.LagSeconds.Float64()
			p.line("%s (%s %s) is %s: %d events behind, the oldest for %s; %d in flight, %d waiting, %d parked", v.Subscription.ID,
				v.Subscription.SubscriberType, v.Subscription.SubscriberID, v.Subscription.Status, v.LagEvents,
				time.Duration(lag*float64(time.Second)).Round(time.Second), v.InFlight, v.Waiting, v.Parked)
			p.row("LEGAL ENTITY", "READ", "CHECKPOINT", "HEAD", "LAG", "IN FLIGHT", "WAITING", "PARKED", "MOVED")
			for _, c := range v.Cursors {
				p.row(c.LegalEntity, c.ReadThrough, c.Checkpoint, c.Head, c.LagEvents, c.InFlight, c.Waiting, c.Parked, c.UpdatedAt.UTC().Format(plainMinuteLayout))
			}
			n := v.Statistics
			p.line("So far: acknowledged %d, delivered %d, discarded %d, parked %d, replayed %d, retried %d, skipped %d, timed out %d",
				n.Acknowledged, n.Delivered, n.Discarded, n.Parked, n.Replayed, n.Retried, n.Skipped, n.TimedOut)
		})
	})
}

func createSubscriptionCommand() *cobra.Command {
	var body client.NewSubscription
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Make a subscription, which the caller owns",
		Example: "  backbone subscriptions create vendor-mirror --subscriber service:crm --type ap.vendor.registered\n" +
			"  backbone subscriptions create all-of-ap --subscriber agent:a-7 --module ap --order stream --start end\n" +
			"  backbone subscriptions create site-b7 --subscriber service:mes --site B-7 --stream-type machine --custom cost_center=CC-1,cost_center=CC-2\n" +
			"  backbone subscriptions create ledger --subscriber service:bi --stream gl.ledger/main --legal-entity DEMF\n" +
			"  backbone subscriptions create after-feed --subscriber service:crm --cursor \"$(cat feed.cursor)\"\n" +
			"  backbone subscriptions create after-audit --subscriber service:bi --position 4200",
		Args: cobra.ExactArgs(1),
	}
	var subscriber string
	f := cmd.Flags()
	f.StringVar(&subscriber, "subscriber", "", "who receives the events, as type:id; agent, rule, projection, webhook or service (required)")
	selected := selectionFlags(cmd, &body)
	f.StringVar(&body.Settings.ConsumerStrategy, "strategy", "", "round_robin or pinned (default round_robin)")
	f.StringVar(&body.Settings.StartCursor, "cursor", "", "begin at the cursor of a feed of all legal entities")
	position := positionFlag(cmd, &body.Settings.StartCursor)
	cmd.MarkFlagsMutuallyExclusive("start", "cursor", "position")
	required(cmd, "subscriber")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		kind, id, found := strings.Cut(subscriber, ":")
		if !found {
			return fault.New(fault.Invalid, "cli.subscriber_invalid", "--subscriber is type:id, such as service:crm; correct it")
		}
		if err := selected(); err != nil {
			return err
		}
		body.ID, body.SubscriberType, body.SubscriberID = args[0], kind, id
		if err := position(ctx, s); err != nil {
			return err
		}
		if body.Settings.StartCursor != "" {
			body.Settings.StartFrom = "cursor"
		}
		return s.subscription(s.CreateSubscription(ctx, body, s.keep()))
	})
}

// positionFlag adds a flag for a position of the global log. Call resolve when the flags are parsed: it asks for the cursor that begins there.
func positionFlag(cmd *cobra.Command, cursor *string) (resolve func(ctx context.Context, s *session) error) {
	position := cmd.Flags().String("position", "", "begin at a position of the global log")
	return func(ctx context.Context, s *session) error {
		if *position == "" {
			return nil
		}
		found, err := s.GetGlobalLogCursor(ctx, client.GetGlobalLogCursorParams{Position: *position})
		*cursor = found.Cursor
		return err
	}
}

// selectionFlags adds the flags that select the events of a subscription and their order. Call
// selected when the flags are parsed.
func selectionFlags(cmd *cobra.Command, body *client.NewSubscription) (selected func() error) {
	f := cmd.Flags()
	f.StringSliceVar(&body.LegalEntities, "legal-entity", nil, "only these legal entities (default: all that the owner may read, also later ones)")
	filter := eventFilterFlags(cmd)
	f.StringSliceVar(&body.Streams, "stream", nil, "only events of these streams, TYPE/ID")
	f.StringVar(&body.Settings.PartitionBy, "order", "", "legal_entity, none, stream, correlation, entity:<type> or a path such as $.order.id (default legal_entity)")
	f.StringVar(&body.Settings.StartFrom, "start", "", "beginning or end (default beginning)")
	return func() error {
		body.EventTypes, body.Modules, body.Divisions, body.Regions, body.Sites = filter.types, filter.modules, filter.divisions, filter.regions, filter.sites
		body.Tags, body.StreamTypes = filter.tags, filter.streamTypes
		for _, scope := range filter.custom {
			name, value, found := strings.Cut(scope, "=")
			if !found {
				return fault.New(fault.Invalid, "cli.custom_invalid", "--custom is NAME=VALUE, such as cost_center=CC-1; correct it")
			}
			if body.Custom == nil {
				body.Custom = map[string][]string{}
			}
			body.Custom[name] = append(body.Custom[name], value)
		}
		return nil
	}
}

// eventFilter is the part of a filter that subscriptions and live feeds have alike.
type eventFilter struct {
	types, modules, divisions, regions, sites, custom, tags, streamTypes []string
}

// eventFilterFlags adds the flags of a filter. A flag may be given several times.
func eventFilterFlags(cmd *cobra.Command) *eventFilter {
	var filter eventFilter
	f := cmd.Flags()
	f.StringSliceVar(&filter.types, "type", nil, "only events of these types")
	f.StringSliceVar(&filter.modules, "module", nil, "only events of these modules")
	f.StringSliceVar(&filter.divisions, "division", nil, "only events of these divisions")
	f.StringSliceVar(&filter.regions, "region", nil, "only events of these regions")
	f.StringSliceVar(&filter.sites, "site", nil, "only events of these sites")
	f.StringSliceVar(&filter.custom, "custom", nil, "only events with this custom scope, NAME=VALUE; any value of a name, and each name")
	f.StringSliceVar(&filter.tags, "tag", nil, "only events with any of these tags")
	f.StringSliceVar(&filter.streamTypes, "stream-type", nil, "only events of streams of these types")
	return &filter
}

// changeSubscriptionCommand builds pause and resume.
func changeSubscriptionCommand(verb, short string, change func(*client.Client, context.Context, string, ...client.Option) (client.Subscription, error)) *cobra.Command {
	return serverCommand(&cobra.Command{
		Use: verb + " ID", Short: short, Example: "  backbone subscriptions " + verb + " vendor-mirror", Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, s *session, args []string) error {
		return s.subscription(change(s.Client, ctx, args[0], s.keep()))
	})
}

func resetSubscriptionCommand() *cobra.Command {
	var to, at, cursor string
	var positions map[string]string
	cmd := &cobra.Command{
		Use:   "reset ID",
		Short: "Move a subscription to any position",
		Long: "Events in flight are dropped, events after the position are delivered again, and dead\n" +
			"letters before it are kept.",
		Example: "  backbone subscriptions reset vendor-mirror --to beginning\n" +
			"  backbone subscriptions reset vendor-mirror --at USMF=1200,DEMF=1\n" +
			"  backbone subscriptions reset vendor-mirror --time 2026-03-31T12:00:00Z\n" +
			"  backbone subscriptions reset vendor-mirror --cursor \"$(cat feed.cursor)\"",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "beginning or end")
	f.StringToStringVar(&positions, "at", nil, "by legal entity the sequence of the first event to deliver; other legal entities stay")
	f.StringVar(&at, "time", "", "begin with what was recorded at this time")
	f.StringVar(&cursor, "cursor", "", "continue at the cursor of a feed of all legal entities")
	position := positionFlag(cmd, &cursor)
	cmd.MarkFlagsOneRequired("to", "at", "time", "cursor", "position")
	cmd.MarkFlagsMutuallyExclusive("to", "at", "time", "cursor", "position")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		if err := position(ctx, s); err != nil {
			return err
		}
		r := client.ResetSubscription{To: to, Positions: positions, Time: at, Cursor: cursor}
		switch {
		case len(positions) > 0:
			r.To = "position"
		case at != "":
			r.To = "time"
		case cursor != "":
			r.To = "cursor"
		}
		return s.subscription(s.ResetSubscription(ctx, args[0], r, s.keep()))
	})
}

// subscription writes a subscription that was created or changed.
func (s *session) subscription(v client.Subscription, err error) error {
	if err != nil {
		return err
	}
	return s.print(func(p *page) {
		p.line("Subscription %s is %s.", v.ID, v.Status)
		for _, w := range v.Warnings {
			p.line("Warning %s: %s.", w.Code, w.Detail)
		}
	})
}

func deleteSubscriptionCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use: "delete ID", Short: "Delete a subscription with its events in flight and its dead letters",
		Example: "  backbone subscriptions delete vendor-mirror", Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, s *session, args []string) error {
		if _, err := s.DeleteSubscription(ctx, args[0]); err != nil {
			return err
		}
		return s.show(map[string]any{"id": args[0], "deleted": true}, func(p *page) { p.line("Subscription %s is deleted.", args[0]) })
	})
}

func parkedCommand() *cobra.Command {
	var filter client.ListParkedMessagesParams
	var groups bool
	cmd := &cobra.Command{
		Use:   "parked ID [EVENT]",
		Short: "List a subscription's dead letters, count them by failure, or inspect one",
		Example: "  backbone subscriptions parked vendor-mirror --groups\n" +
			"  backbone subscriptions parked vendor-mirror --code crm.unavailable\n" +
			"  backbone subscriptions parked vendor-mirror 01JWZX3V9K5T7Q8R2M4N6P0ABC",
		Args: cobra.RangeArgs(1, 2),
	}
	f := cmd.Flags()
	f.BoolVar(&groups, "groups", false, "count by failure")
	f.StringVar(&filter.Code, "code", "", "only those with this code")
	f.StringVar(&filter.Cursor, "cursor", "", "continue after an earlier page")
	f.IntVar(&filter.Limit, "limit", 100, "at most so many")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		switch {
		case len(args) == 2:
			if _, err := s.GetParkedMessage(ctx, args[0], args[1], s.keep()); err != nil {
				return err
			}
			return printJSON(s.out, s.document)
		case groups:
			return s.parkedGroups(s.ListParkedGroups(ctx, args[0], s.keep()))
		}
		return s.parked(s.ListParkedMessages(ctx, args[0], filter, s.keep()))
	})
}

func (s *session) parkedGroups(list client.ParkedGroupList, err error) error {
	if err != nil {
		return err
	}
	return s.print(func(p *page) {
		p.row("CODE", "MESSAGES", "FIRST", "LAST")
		for _, g := range list.Groups {
			p.row(g.Code, g.Messages, g.FirstParkedAt.UTC().Format(plainMinuteLayout), g.LastParkedAt.UTC().Format(plainMinuteLayout))
		}
	})
}

func (s *session) parked(list client.ParkedList, err error) error {
	if err != nil {
		return err
	}
	return s.show(map[string]any{"messages": list.Messages, "next_cursor": list.NextCursor}, func(p *page) {
		p.row("LEGAL ENTITY", "SEQUENCE", "EVENT", "CODE", "ATTEMPTS", "PARKED", "REASON")
		for _, m := range list.Messages {
			p.row(m.LegalEntity, m.Sequence, m.EventID, m.Code, m.Attempts, m.ParkedAt.UTC().Format(plainMinuteLayout), cmp.Or(m.Detail, "-"))
		}
		p.next(list.NextCursor)
	})
}

// settleParkedCommand builds replay and discard.
func settleParkedCommand(verb, short, outcome string, settle func(*client.Client, context.Context, string, client.SettleParked, ...client.Option) (client.SettledParked, error)) *cobra.Command {
	var body client.SettleParked
	step := 0
	cmd := &cobra.Command{
		Use:   verb + " ID [EVENT...]",
		Short: short,
		Example: "  backbone subscriptions " + verb + " vendor-mirror 01JWZX3V9K5T7Q8R2M4N6P0ABC --reason \"Corrected by hand\"\n" +
			"  backbone subscriptions " + verb + " vendor-mirror --all --code crm.unavailable --reason \"The CRM is back\"",
		Args: cobra.MinimumNArgs(1),
	}
	f := cmd.Flags()
	f.BoolVar(&body.All, "all", false, "all of them, step by step")
	f.StringVar(&body.Code, "code", "", "with --all, only those with this code")
	f.StringVar(&body.LegalEntity, "legal-entity", "", "only those of this legal entity (default: of all)")
	f.StringVar(&body.Reason, "reason", "", "why; no personal data")
	f.IntVar(&step, "step", 100, "messages of one step, 1 to 1000")
	if verb == "discard" {
		required(cmd, "reason")
	}
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		body.EventIds = args[1:]
		if step != 0 {
			body.Limit = &step
		}
		if body.All == (len(body.EventIds) > 0) {
			return fault.New(fault.Invalid, "cli.selection_missing", "name event ids, or --all with --code to narrow it, and not both")
		}
		total := 0
		for { // with --all, a step at a time
			done, err := settle(s.Client, ctx, args[0], body)
			if err != nil {
				return err
			}
			total += done.Messages
			if !done.HasMore || done.Messages == 0 {
				break
			}
		}
		return s.show(map[string]any{"messages": total}, func(p *page) { p.line("%s %s.", counted(total, "message"), outcome) })
	})
}
