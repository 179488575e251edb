package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
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
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return wire.ListSubscriptions(cmd.Context(), options()) }
	return cmd
}

func showSubscriptionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show how far a subscription is", Example: "  backbone subscriptions show vendor-mirror", Args: cobra.ExactArgs(1)}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.ShowSubscription(cmd.Context(), options(), args[0])
	}
	return cmd
}

func createSubscriptionCommand() *cobra.Command {
	var s wire.NewSubscription
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
		return wire.CreateSubscription(cmd.Context(), options(), s)
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
			return wire.PauseSubscription(cmd.Context(), options(), args[0])
		}
		return wire.ResumeSubscription(cmd.Context(), options(), args[0])
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
		r := wire.ResetPosition{To: to, Positions: positions, Time: at, Cursor: cursor}
		switch {
		case len(positions) > 0:
			r.To = "position"
		case at != "":
			r.To = "time"
		case cursor != "":
			r.To = "cursor"
		}
		return wire.ResetSubscription(cmd.Context(), options(), args[0], r)
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
		return wire.DeleteSubscription(cmd.Context(), options(), args[0])
	}
	return cmd
}

func parkedCommand() *cobra.Command {
	var p wire.ParkedOptions
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
		return wire.ShowParked(cmd.Context(), options(), args[0], p)
	}
	return cmd
}

func settleParkedCommand(verb string) *cobra.Command {
	var s wire.ParkedSelection
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
		return wire.SettleParked(cmd.Context(), options(), args[0], verb, s)
	}
	return cmd
}
