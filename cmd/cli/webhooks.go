package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
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
		turnWebhookCommand("rotate-secret", "Replace the secret that signs and show the new one once", RotateWebhookSecret),
		turnWebhookCommand("delete", "Send nothing any more; the subscription stays", DeleteWebhook))
	return cmd
}

func listWebhooksCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List endpoints with their last outcome", Example: "  backbone webhooks list\n  backbone webhooks list --json", Args: cobra.NoArgs}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return ListWebhooks(cmd.Context(), options()) }
	return cmd
}

func showWebhookCommand() *cobra.Command {
	var v WebhookView
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an endpoint, its retry schedule and what came of its newest deliveries",
		Example: "  backbone webhooks show machine-hook\n  backbone webhooks show machine-hook --attempts 100 --json", Args: cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.Flags().IntVar(&v.Limit, "attempts", 20, "at most so many attempts, up to 100")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ShowWebhook(cmd.Context(), options(), args[0], v)
	}
	return cmd
}

func createWebhookCommand() *cobra.Command {
	var w NewWebhook
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
		return CreateWebhook(cmd.Context(), options(), w)
	}
	return cmd
}

func testWebhookCommand() *cobra.Command {
	cmd := turnWebhookCommand("test", "Send a test message and print what the endpoint answered", TestWebhook)
	cmd.Long = "test sends one message of type backbone.webhook.test, signed like all others, with the\n" +
		"endpoint's headers, also while it is disabled. What comes of it changes nothing. The command\n" +
		"fails if the message is not taken, and says what to do."
	return cmd
}

func turnWebhookCommand(verb, short string, run func(context.Context, ClientOptions, string) error) *cobra.Command {
	cmd := &cobra.Command{Use: verb + " ID", Short: short, Example: "  backbone webhooks " + verb + " machine-hook", Args: cobra.ExactArgs(1)}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), options(), args[0]) }
	return cmd
}

// ListWebhooks is `backbone webhooks list`.
func ListWebhooks(ctx context.Context, o ClientOptions) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	all, err := client.Webhooks(ctx)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"webhooks": all})
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SUBSCRIPTION\tSTATUS\tURL\tOWNER\tHEADERS\tLAST ATTEMPT\tOUTCOME")
	for i := range all {
		w := &all[i]
		status, at, outcome := w.Status, "-", "-"
		if !w.DisabledAt.IsZero() {
			status = "disabled: " + w.DisabledCode
		}
		if w.LastAttempt != nil {
			at, outcome = w.LastAttempt.AttemptedAt.UTC().Format(subscriptionMinute), outcomeOf(w.LastAttempt)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", w.Subscription, status, w.URL, w.Owner, cmp.Or(strings.Join(w.HeaderNames, ", "), "-"), at, outcome)
	}
	return table.Flush()
}

func outcomeOf(a *httpclient.WebhookAttempt) string {
	if a.Delivered {
		return fmt.Sprintf("taken (%d)", a.Status)
	}
	return a.Code
}

// WebhookView are the flags of `backbone webhooks show`.
type WebhookView struct{ Limit int }

// ShowWebhook is `backbone webhooks show`.
func ShowWebhook(ctx context.Context, o ClientOptions, id string, v WebhookView) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	e, err := client.WebhookEndpoint(ctx, id)
	if err != nil {
		return err
	}
	list, err := client.WebhookAttempts(ctx, id, v.Limit)
	if err != nil {
		return err
	}
	sub, err := client.Subscription(ctx, id)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"endpoint": e, "attempts": list, "status": sub.Subscription.Status})
	}
	state := "is delivered to"
	switch {
	case !e.DisabledAt.IsZero():
		state = fmt.Sprintf("is disabled since %s (%s); set it again with `backbone webhooks create %s --url ...`", e.DisabledAt.UTC().Format(subscriptionMinute), e.DisabledCode, id)
	case waits(&sub.Subscription) != "":
		state = "waits: " + waits(&sub.Subscription)
	}
	fmt.Fprintf(o.Out, "%s %s\n", e.URL, state)
	fmt.Fprintf(o.Out, "Secret: number %d", e.SecretNumber)
	if e.PreviousSecretUntil.After(time.Now()) {
		fmt.Fprintf(o.Out, "; the one before signs too until %s", e.PreviousSecretUntil.UTC().Format(subscriptionMinute))
	}
	fmt.Fprintf(o.Out, "\nOwn headers: %s\n", cmp.Or(strings.Join(e.HeaderNames, ", "), "none"))
	fmt.Fprintln(o.Out, "Tried again after:", scheduleText(e.RetryScheduleSeconds))
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AT\tLEGAL ENTITY\tSEQUENCE\tEVENT\tATTEMPT\tOUTCOME\tSTATUS\tTOOK\tNEXT ATTEMPT")
	for i := range list {
		a := &list[i]
		next, status := "-", "-"
		if !a.NextAttemptAt.IsZero() {
			next = a.NextAttemptAt.UTC().Format(time.DateTime)
		}
		if a.Status != 0 {
			status = fmt.Sprint(a.Status)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d ms\t%s\n", a.AttemptedAt.UTC().Format(time.DateTime), a.LegalEntity, a.Sequence, a.EventID, a.Attempt,
			cmp.Or(a.Code, "taken"), status, a.DurationMs, next)
	}
	return table.Flush()
}

// scheduleText writes pauses: "5s, 10s, then a dead letter".
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

// NewWebhook are the flags of `backbone webhooks create`.
type NewWebhook struct {
	Subscription httpclient.NewSubscription
	Asked        bool // flags say something about the subscription
	URL          string
	Headers      string    // a file of lines "Name: value"; "-" is In; "": as they are
	NoHeaders    bool      // take them away
	In           io.Reader // for Headers
}

// CreateWebhook is `backbone webhooks create`: the subscription, if there is none, and
// its endpoint.
func CreateWebhook(ctx context.Context, o ClientOptions, w NewWebhook) error {
	endpoint := httpclient.NewWebhookEndpoint{URL: w.URL}
	if w.NoHeaders {
		endpoint.Headers = map[string]string{}
	}
	if w.Headers != "" {
		var err error
		if endpoint.Headers, err = readHeaders(w.Headers, w.In); err != nil {
			return err
		}
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	w.Subscription.SubscriberType = webhooks.SubscriberType
	_, err = client.Subscription(ctx, w.Subscription.ID)
	made := fault.CodeOf(err) == "subscription.not_found"
	if w.Asked && err == nil || made {
		_, err = client.CreateSubscription(ctx, w.Subscription)
	}
	if err != nil {
		return err
	}
	e, err := client.SetWebhookEndpoint(ctx, w.Subscription.ID, endpoint)
	if err != nil {
		if made && fault.KindOf(err) == fault.Invalid { // without an endpoint it would only stand in the way
			_ = client.DeleteSubscription(ctx, w.Subscription.ID) // what was wrong matters more
		}
		return err
	}
	done := "Events of " + w.Subscription.ID + " are sent to " + e.URL + "."
	// A secret is shown only once, so nothing that fails from here on matters.
	if now, err := client.Subscription(ctx, w.Subscription.ID); err == nil && waits(&now.Subscription) != "" {
		done = e.URL + " is set, and waits: " + waits(&now.Subscription) + "."
	}
	return o.endpoint(w.Subscription.ID, e, done)
}

// waits says why nothing of a subscription is sent; "": it is.
func waits(s *httpclient.Subscription) string {
	if s.Status == "" || s.Status == string(subscription.Active) {
		return ""
	}
	return fmt.Sprintf("its subscription is %s; `backbone subscriptions resume %s` goes on", s.Status, s.ID)
}

// endpoint shows an endpoint that was made or changed, with its secret if it has one.
func (o ClientOptions) endpoint(id string, e httpclient.WebhookEndpoint, done string) error {
	if o.JSON {
		return o.json(map[string]any{"subscription": id, "endpoint": e})
	}
	fmt.Fprintln(o.Out, done)
	if e.Secret != "" {
		fmt.Fprintf(o.Out, "Its secret, shown once; the receiver checks signatures with it:\n%s\n", e.Secret)
	}
	return nil
}

// readHeaders reads lines such as "Authorization: Bearer abc". Values are not repeated
// in errors.
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

// RotateWebhookSecret is `backbone webhooks rotate-secret`.
func RotateWebhookSecret(ctx context.Context, o ClientOptions, id string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	e, err := client.RotateWebhookSecret(ctx, id)
	if err != nil {
		return err
	}
	return o.endpoint(id, e, fmt.Sprintf("%s has secret number %d; the one before signs too until %s.", id, e.SecretNumber, e.PreviousSecretUntil.UTC().Format(subscriptionMinute)))
}

// TestWebhook is `backbone webhooks test`. A delivery that was not taken is an error.
func TestWebhook(ctx context.Context, o ClientOptions, id string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	t, err := client.TestWebhook(ctx, id)
	if err != nil {
		return err
	}
	if o.JSON {
		if err := o.json(t); err != nil {
			return err
		}
	}
	switch {
	case !t.Delivered:
		return fault.New(fault.FailedPrecondition, t.Code, "not taken after %d ms: %s", t.DurationMs, advice(t))
	case !o.JSON:
		fmt.Fprintf(o.Out, "Taken: the endpoint answered %d after %d ms.\n", t.Status, t.DurationMs)
	}
	return nil
}

// advice says what to do about a test that was not taken.
func advice(t httpclient.WebhookTest) string {
	switch {
	case t.Status >= 300 && t.Status < 400:
		return "the endpoint redirects, which is not followed; set the address that it leads to"
	case t.Status == 401 || t.Status == 403:
		return "the endpoint refuses it; see that it checks signatures with the newest secret, and which headers its gateway asks for (--headers)"
	case t.Status == 404 || t.Status == 405:
		return "nothing takes POST requests there; correct the address"
	case t.Status == 410:
		return "the endpoint wants nothing more; set another address, or delete the webhook"
	case t.Status >= 500:
		return "the receiver failed; see its log"
	case t.Status > 0:
		return "only 2xx takes a delivery; see the receiver's log"
	}
	return cmp.Or(map[string]string{
		"webhook.timeout":            "no answer in time; the receiver should answer first and work afterwards",
		"webhook.connection":         "no connection; see that the receiver runs and that its port is open to this server",
		"webhook.dns":                "the name of the host was not found; correct the address",
		"webhook.tls":                "no TLS connection; see that the certificate is valid for the name and that its issuer is known here",
		"webhook.address_refused":    "the name leads to a private, local or reserved address; use a public one, or have an operator add the network to webhook.allowed_networks",
		"webhook.url_invalid":        "the configuration does not allow this address any more; set another one",
		"webhook.header_invalid":     "one of the headers is not let through any more; set the endpoint again without it",
		"webhook.headers_unreadable": "the headers cannot be opened for this address; set the endpoint again with --headers",
	}[t.Code], "see the server's log")
}

// DeleteWebhook is `backbone webhooks delete`.
func DeleteWebhook(ctx context.Context, o ClientOptions, id string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	if err := client.DeleteWebhookEndpoint(ctx, id); err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"id": id, "deleted": true})
	}
	fmt.Fprintf(o.Out, "Nothing of %s is sent any more. The subscription stays; `backbone subscriptions delete %s` deletes it too.\n", id, id)
	return nil
}
