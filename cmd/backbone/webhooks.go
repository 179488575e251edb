package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

func webhooksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Look after the endpoints that events are sent to",
		Long: "A webhook is a subscription whose events a server sends to an address over HTTPS, signed\n" +
			"after Standard Webhooks. Its owner makes it; operators see what comes of deliveries.\n" +
			"Dead letters, pausing and positions are those of `backbone subscriptions`.",
	}
	cmd.AddCommand(listWebhooksCommand(), showWebhookCommand(), createWebhookCommand(), testWebhookCommand(),
		turnWebhookCommand("rotate-secret", "Replace the secret that signs and show the new one once", wire.RotateWebhookSecret),
		turnWebhookCommand("delete", "Send nothing any more; the subscription stays", wire.DeleteWebhook))
	return cmd
}

func listWebhooksCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List endpoints with their last outcome", Example: "  backbone webhooks list\n  backbone webhooks list --json", Args: cobra.NoArgs}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return wire.ListWebhooks(cmd.Context(), options()) }
	return cmd
}

func showWebhookCommand() *cobra.Command {
	var v wire.WebhookView
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an endpoint, its retry schedule and what came of its newest deliveries",
		Example: "  backbone webhooks show machine-hook\n  backbone webhooks show machine-hook --attempts 100 --json", Args: cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.Flags().IntVar(&v.Limit, "attempts", 20, "at most so many attempts, up to 100")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.ShowWebhook(cmd.Context(), options(), args[0], v)
	}
	return cmd
}

func createWebhookCommand() *cobra.Command {
	var w wire.NewWebhook
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Make a webhook, or give one another address or other headers",
		Long: "create makes the subscription ID if there is none, sets the address of its endpoint and\n" +
			"prints the secret of a new one once. A webhook that is there keeps its secret, and its\n" +
			"headers as long as the host stays the same.\n\n" +
			"--headers names a file, or - for standard input, with lines such as\n" +
			"\"Authorization: Bearer ...\". They are sent with every delivery, stored encrypted, and\n" +
			"never shown again.",
		Example: "  backbone webhooks create machine-hook --url https://hooks.example.org/backbone --type equipment.machine.serviced --order stream\n" +
			"  backbone webhooks create machine-hook --url https://hooks.example.org/v2 --headers gateway.txt",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	options := clientFlags(cmd)
	f.StringVar(&w.URL, "url", "", "where to send, https:// (required)")
	f.StringVar(&w.Headers, "headers", "", "file with headers of your own; - is standard input")
	f.BoolVar(&w.NoHeaders, "no-headers", false, "take your own headers away")
	s := &w.Subscription
	f.StringVar(&s.SubscriberID, "subscriber", "", "who takes the events, such as crm (default: ID)")
	f.StringSliceVar(&s.EventTypes, "type", nil, "only events of these types")
	f.StringSliceVar(&s.Modules, "module", nil, "only events of these modules")
	f.StringSliceVar(&s.LegalEntities, "legal-entity", nil, "only these legal entities (default: all that the owner may read, also later ones)")
	f.StringVar(&s.Settings.PartitionBy, "order", "", "legal_entity, none, stream, correlation, entity:<type> or a path such as $.order.id (default legal_entity)")
	f.StringVar(&s.Settings.StartFrom, "start", "", "beginning or end (default beginning)")
	_ = cmd.MarkFlagRequired("url") // the flag exists
	cmd.MarkFlagsMutuallyExclusive("headers", "no-headers")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.ID = args[0]
		s.SubscriberID = cmp.Or(s.SubscriberID, s.ID)
		for _, name := range []string{"subscriber", "type", "module", "legal-entity", "order", "start"} {
			w.Asked = w.Asked || f.Changed(name)
		}
		w.In = cmd.InOrStdin()
		return wire.CreateWebhook(cmd.Context(), options(), w)
	}
	return cmd
}

func testWebhookCommand() *cobra.Command {
	cmd := turnWebhookCommand("test", "Send a test message and print what the endpoint answered", wire.TestWebhook)
	cmd.Long = "test sends one message of type backbone.webhook.test, signed like all others, with the\n" +
		"endpoint's headers, also while it is disabled. What comes of it changes nothing. The command\n" +
		"fails if the message is not taken, and says what to do."
	return cmd
}

func turnWebhookCommand(verb, short string, run func(context.Context, wire.ClientOptions, string) error) *cobra.Command {
	cmd := &cobra.Command{Use: verb + " ID", Short: short, Example: "  backbone webhooks " + verb + " machine-hook", Args: cobra.ExactArgs(1)}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), options(), args[0]) }
	return cmd
}
