package cli

import (
	"bufio"
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
	"github.com/erpbackbone/backbone/domain/subscription"
)

func webhooksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Operate the endpoints that events are sent to",
		Long: "A webhook is a subscription whose events a server sends to an address over HTTPS, signed\n" +
			"after Standard Webhooks. Its owner makes it; operators see the outcome of deliveries.\n" +
			"Dead letters, pausing and positions are those of `backbone subscriptions`.",
	}
	cmd.AddCommand(listWebhooksCommand(), showWebhookCommand(), createWebhookCommand(), testWebhookCommand(),
		rotateWebhookSecretCommand(), deleteWebhookCommand(),
		listWebhookHostsCommand(),
		changeWebhookHostsCommand("allow", "Let the webhooks of the tenant send to a host", allowWebhookHost),
		changeWebhookHostsCommand("disallow", "Send to a host no more", removeWebhookHost))
	return cmd
}

func listWebhooksCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use: "list", Short: "List endpoints with their last outcome", Example: "  backbone webhooks list\n  backbone webhooks list --json", Args: cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		all, err := s.ListWebhooks(ctx, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			p.row("SUBSCRIPTION", "STATUS", "URL", "OWNER", "HEADERS", "LAST ATTEMPT", "OUTCOME")
			for _, w := range all.Webhooks {
				status, at, outcome := w.Status, "-", "-"
				if !w.DisabledAt.IsZero() {
					status = "disabled: " + w.DisabledCode
				}
				if a := w.LastAttempt; !a.AttemptedAt.IsZero() {
					at, outcome = a.AttemptedAt.UTC().Format(plainMinuteLayout), a.Code
					if a.Delivered {
						outcome = fmt.Sprintf("taken (%d)", a.Status)
					}
				}
				p.row(w.Subscription, status, w.URL, w.Owner, cmp.Or(strings.Join(w.HeaderNames, ", "), "-"), at, outcome)
			}
		})
	})
}

func showWebhookCommand() *cobra.Command {
	var attempts int
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an endpoint, its retry schedule and the outcome of its newest deliveries",
		Example: "  backbone webhooks show machine-hook\n  backbone webhooks show machine-hook --attempts 100 --json", Args: cobra.ExactArgs(1),
	}
	cmd.Flags().IntVar(&attempts, "attempts", 100, "at most so many attempts; 100 are kept")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		id := args[0]
		e, err := s.GetWebhookEndpoint(ctx, id)
		if err != nil {
			return err
		}
		list, err := s.ListWebhookAttempts(ctx, id, client.ListWebhookAttemptsParams{Limit: attempts})
		if err != nil {
			return err
		}
		v, err := s.GetSubscription(ctx, id)
		if err != nil {
			return err
		}
		return s.show(map[string]any{"endpoint": e, "attempts": list.Attempts, "status": v.Subscription.Status}, func(p *page) {
			state := "receives events"
			switch blocked := whyNotSent(&v.Subscription); {
			case !e.DisabledAt.IsZero():
				state = fmt.Sprintf("is disabled since %s (%s); set it again with `backbone webhooks create %s --url ...`", e.DisabledAt.UTC().Format(plainMinuteLayout), e.DisabledCode, id)
			case blocked != "":
				state = "waits: " + blocked
			}
			secret := fmt.Sprintf("Secret: number %d", e.SecretNumber)
			if e.PreviousSecretUntil.After(time.Now()) {
				secret += fmt.Sprintf("; the one before signs too until %s", e.PreviousSecretUntil.UTC().Format(plainMinuteLayout))
			}
			p.line("%s %s\n%s", e.URL, state, secret)
			p.line("Own headers: %s", cmp.Or(strings.Join(e.HeaderNames, ", "), "none"))
			if e.PersonalReason != "" {
				p.line("Personal values are sent in clear: %s", e.PersonalReason)
			}
			p.line("Tried again after: %s", scheduleText(e.RetryScheduleSeconds))
			p.row("AT", "LEGAL ENTITY", "SEQUENCE", "EVENT", "ATTEMPT", "OUTCOME", "STATUS", "TOOK", "NEXT ATTEMPT")
			for _, a := range list.Attempts {
				next, status := "-", "-"
				if !a.NextAttemptAt.IsZero() {
					next = a.NextAttemptAt.UTC().Format(time.DateTime)
				}
				if a.Status != 0 {
					status = fmt.Sprint(a.Status)
				}
				p.row(a.AttemptedAt.UTC().Format(time.DateTime), a.LegalEntity, a.Sequence, a.EventID, a.Attempt, cmp.Or(a.Code, "taken"), status,
					fmt.Sprintf("%d ms", a.DurationMs), next)
			}
		})
	})
}

// scheduleText renders a retry schedule: "5s, 10s, then a dead letter".
func scheduleText(seconds []int64) string {
	var parts []string
	total := time.Duration(0)
	for _, s := range seconds {
		d := time.Duration(s) * time.Second
		total += d
		text := d.String() // such as 1h20m0s
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "never; a failure is a dead letter at once"
	}
	return fmt.Sprintf("%s; then a dead letter, %s after the first attempt", strings.Join(parts, ", "), total)
}

func createWebhookCommand() *cobra.Command {
	var body client.NewSubscription
	var url, headers, personal string
	var withoutHeaders bool
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
	f.StringVar(&url, "url", "", "where to send, https:// (required)")
	f.StringVar(&headers, "headers", "", "file with headers of your own; - is standard input")
	f.StringVar(&personal, "personal-data", "", "send personal values in clear, for this reason; without it they are masked")
	f.BoolVar(&withoutHeaders, "no-headers", false, "remove your own headers")
	f.StringVar(&body.SubscriberID, "subscriber", "", "who receives the events, such as crm (default: ID)")
	selected := selectionFlags(cmd, &body)
	required(cmd, "url")
	cmd.MarkFlagsMutuallyExclusive("headers", "no-headers")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		if err := selected(); err != nil {
			return err
		}
		body.ID, body.SubscriberType = args[0], subscription.Webhook
		body.SubscriberID = cmp.Or(body.SubscriberID, body.ID)
		endpoint := client.NewWebhookEndpoint{URL: url, PersonalData: client.WebhookPersonalData{Reason: personal}}
		var replacement []client.Option
		if withoutHeaders { // an empty map removes the headers, which the typed body cannot express
			members := map[string]any{"url": url, "headers": map[string]string{}}
			if personal != "" {
				members["personal_data"] = endpoint.PersonalData
			}
			document, err := json.Marshal(members)
			if err != nil {
				return err
			}
			replacement = append(replacement, client.WithBody(document))
		}
		if headers != "" {
			var err error
			if endpoint.Headers, err = readHeaders(headers, cmd.InOrStdin()); err != nil {
				return err
			}
		}
		changed := slices.ContainsFunc([]string{"subscriber", "type", "module", "legal-entity", "order", "start"}, f.Changed)
		_, err := s.GetSubscription(ctx, body.ID)
		isNew := fault.CodeOf(err) == "subscription.not_found"
		if changed && err == nil || isNew {
			_, err = s.CreateSubscription(ctx, body)
		}
		if err != nil {
			return err
		}
		e, err := s.SetWebhookEndpoint(ctx, body.ID, endpoint, replacement...)
		if err != nil {
			if isNew && (fault.KindOf(err) == fault.Invalid || fault.KindOf(err) == fault.Forbidden) { // a subscription left without an endpoint would block its id for the next attempt
				_, _ = s.DeleteSubscription(ctx, body.ID) // the first error is the one to report
			}
			return err
		}
		done := "Events of " + body.ID + " are sent to " + e.URL + "."
		// A secret is shown only once, so no failure from here on may hide it.
		if now, err := s.GetSubscription(ctx, body.ID); err == nil {
			if blocked := whyNotSent(&now.Subscription); blocked != "" {
				done = e.URL + " is set, and waits: " + blocked + "."
			}
		}
		return s.endpoint(body.ID, e, done)
	})
}

// whyNotSent explains why no events of a subscription are sent; "" if they are sent.
func whyNotSent(s *client.Subscription) string {
	if s.Status == "" || s.Status == string(subscription.Active) {
		return ""
	}
	return fmt.Sprintf("its subscription is %s; `backbone subscriptions resume %s` resumes it", s.Status, s.ID)
}

// endpoint writes an endpoint that was created or changed, with its secret if the answer has one.
func (s *session) endpoint(id string, e client.WebhookEndpoint, done string) error {
	return s.show(map[string]any{"subscription": id, "endpoint": e}, func(p *page) {
		p.line("%s", done)
		if e.Secret != "" {
			p.line("Its secret, shown once; the receiver checks signatures with it:\n%s", e.Secret)
		}
	})
}

// readHeaders reads lines such as "Authorization: Bearer abc". Its errors do not quote values.
func readHeaders(path string, in io.Reader) (map[string]string, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fault.New(fault.Invalid, "cli.headers_unreadable", "the file of headers cannot be read; correct --headers").WithCause(err)
		}
		defer file.Close()
		in = file
	}
	out := map[string]string{}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		name, value, found := strings.Cut(text, ":")
		if _, twice := out[name]; !found || twice {
			return nil, fault.New(fault.Invalid, "cli.headers_unreadable", "line %d of the headers is not a further \"Name: value\"; correct it", n)
		}
		out[name] = strings.TrimSpace(value)
	}
	return out, lines.Err()
}

func rotateWebhookSecretCommand() *cobra.Command {
	return serverCommand(webhookCommand("rotate-secret", "Replace the secret that signs and show the new one once"), func(ctx context.Context, s *session, args []string) error {
		e, err := s.RotateWebhookSecret(ctx, args[0])
		if err != nil {
			return err
		}
		return s.endpoint(args[0], e, fmt.Sprintf("%s has secret number %d; the one before signs too until %s.", args[0], e.SecretNumber, e.PreviousSecretUntil.UTC().Format(plainMinuteLayout)))
	})
}

func deleteWebhookCommand() *cobra.Command {
	return serverCommand(webhookCommand("delete", "Send nothing any more; the subscription stays"), func(ctx context.Context, s *session, args []string) error {
		if _, err := s.DeleteWebhookEndpoint(ctx, args[0]); err != nil {
			return err
		}
		return s.show(map[string]any{"id": args[0], "deleted": true}, func(p *page) {
			p.line("Nothing of %s is sent any more. The subscription stays; `backbone subscriptions delete %s` deletes it too.", args[0], args[0])
		})
	})
}

func webhookCommand(verb, short string) *cobra.Command {
	return &cobra.Command{Use: verb + " ID", Short: short, Example: "  backbone webhooks " + verb + " machine-hook", Args: cobra.ExactArgs(1)}
}

func listWebhookHostsCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use: "hosts", Short: "List the hosts that webhooks may send to", Example: "  backbone webhooks hosts", Args: cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		all, err := s.ListWebhookHosts(ctx)
		if err != nil {
			return err
		}
		return s.hosts(all)
	})
}

// changeWebhookHostsCommand makes a command that changes the allowed hosts and prints them.
func changeWebhookHostsCommand(verb, short string, change func(ctx context.Context, s *session, host, reason string) (client.WebhookHostList, error)) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: verb + " HOST", Short: short, Example: "  backbone webhooks " + verb + " hooks.example.org\n  backbone webhooks " + verb + " hooks.example.org:8443 --reason \"vendor portal\"", Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, without personal data; kept in the administrative log")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		all, err := change(ctx, s, args[0], reason)
		if err != nil {
			return err
		}
		return s.hosts(all)
	})
}

func allowWebhookHost(ctx context.Context, s *session, host, reason string) (client.WebhookHostList, error) {
	return s.AllowWebhookHost(ctx, host, client.AllowWebhookHostParams{Reason: reason})
}

func removeWebhookHost(ctx context.Context, s *session, host, reason string) (client.WebhookHostList, error) {
	return s.RemoveWebhookHost(ctx, host, client.RemoveWebhookHostParams{Reason: reason})
}

// hosts prints the hosts that webhooks may send to.
func (s *session) hosts(all client.WebhookHostList) error {
	return s.show(all, func(p *page) {
		p.row("HOST", "ADDED BY", "AT", "REASON")
		for _, h := range all.Hosts {
			p.row(h.Host, h.AddedBy, h.AddedAt.UTC().Format(plainMinuteLayout), cmp.Or(h.Reason, "-"))
		}
	})
}

func testWebhookCommand() *cobra.Command {
	cmd := webhookCommand("test", "Send a test message and print what the endpoint answered")
	cmd.Long = "test sends one message of type backbone.webhook.test, signed like all others, with the\n" +
		"endpoint's headers, also while it is disabled. Its outcome changes nothing. The command\n" +
		"fails if the message is not accepted, and prints what to do."
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		t, err := s.TestWebhook(ctx, args[0], s.keep())
		if err != nil {
			return err
		}
		if s.json || t.Delivered {
			err = s.print(func(p *page) { p.line("Taken: the endpoint answered %d after %d ms.", t.Status, t.DurationMs) })
		}
		if err == nil && !t.Delivered {
			err = fault.New(fault.FailedPrecondition, t.Code, "not taken after %d ms: %s", t.DurationMs, testAdvice(t))
		}
		return err
	})
}

// testAdvice returns the next step after a test message that the endpoint did not accept.
func testAdvice(t client.WebhookTest) string {
	switch {
	case t.Status >= 300 && t.Status < 400:
		return "the endpoint redirects, which is not followed; set the address that it leads to"
	case t.Status == 401 || t.Status == 403:
		return "the endpoint refuses it; see that it checks signatures with the newest secret, and which headers its gateway asks for (--headers)"
	case t.Status == 404 || t.Status == 405:
		return "no POST requests are accepted there; correct the address"
	case t.Status == 410:
		return "the endpoint refuses all further events; set another address, or delete the webhook"
	case t.Status >= 500:
		return "the receiver failed; see its log"
	case t.Status > 0:
		return "only 2xx takes a delivery; see the receiver's log"
	}
	return cmp.Or(map[string]string{
		"webhook.timeout":             "no answer in time; the receiver should answer first and work afterwards",
		"webhook.connection":          "no connection; see that the receiver runs and that its port is open to this server",
		"webhook.dns":                 "the name was not found, or leads to an address that is not allowed; correct it, or have an operator add the network to webhook.allowed_networks",
		"webhook.tls":                 "no TLS connection; see that the certificate is valid for the name and that its issuer is known here",
		"webhook.host_not_allowed":    "the host is not allowed any more; have an administrator allow it with `backbone webhooks allow`",
		"webhook.endpoint_unrecorded": "the stored endpoint is not as it was recorded; set it again with `backbone webhooks create`",
		"webhook.url_invalid":         "the configuration does not allow this address any more; set another one",
		"webhook.header_invalid":      "one of the headers is not let through any more; set the endpoint again without it",
		"webhook.headers_unreadable":  "the headers cannot be opened for this address; set the endpoint again with --headers",
	}[t.Code], "see the server's log")
}
