package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

// clientFlags adds the flags of commands that talk to a server. The result fills in
// where the command writes.
func clientFlags(cmd *cobra.Command) func() wire.ClientOptions {
	var o wire.ClientOptions
	f := cmd.Flags()
	f.StringVar(&o.Server, "server", envOr("BACKBONE_SERVER", "http://127.0.0.1:8080"), "server's URL (environment BACKBONE_SERVER)")
	f.StringVar(&o.Token, "token", os.Getenv("BACKBONE_TOKEN"), "access token (environment BACKBONE_TOKEN)")
	f.BoolVar(&o.JSON, "json", false, "print the answer as JSON")
	f.Lookup("token").DefValue = "" // help shows nobody's token
	f.Lookup("server").DefValue = "http://127.0.0.1:8080"
	return func() wire.ClientOptions {
		o.Out, o.Err, o.Terminal = cmd.OutOrStdout(), cmd.ErrOrStderr(), wire.IsTerminal(os.Stderr)
		return o
	}
}

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
	var e wire.NewErasure
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
		return wire.RequestErasure(cmd.Context(), options(), wait, e, key)
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
		return wire.ApproveErasure(cmd.Context(), options(), wait, args[0])
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
			return wire.RejectErasure(cmd.Context(), options(), args[0], reason)
		}
		return wire.WithdrawErasure(cmd.Context(), options(), args[0], reason)
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
		return wire.ErasureStatus(cmd.Context(), options(), wait, args[0])
	}
	return cmd
}

func listErasuresCommand() *cobra.Command {
	var l wire.ErasureList
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
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return wire.ListErasures(cmd.Context(), options(), l) }
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
		certificate, err := wire.ErasureCertificate(cmd.Context(), options(), args[0])
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

func holdsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "holds",
		Short: "Keep the personal data of a person from being erased",
	}
	cmd.AddCommand(placeHoldCommand(), releaseHoldCommand(), listHoldsCommand())
	return cmd
}

func placeHoldCommand() *cobra.Command {
	var h wire.NewHold
	cmd := &cobra.Command{
		Use:   "place SUBJECT",
		Short: "Place a legal hold",
		Example: "  backbone holds place employee:E-1 --reason \"Proceedings 4711\"\n" +
			"  backbone holds place employee:E-1 --reason \"Audit 2025\" --legal-entity DEMF --until 2027-12-31",
		Args: cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&h.Reason, "reason", "", "why; no personal data (required)")
	f.StringSliceVar(&h.LegalEntities, "legal-entity", nil, "only in these legal entities (default: all of the tenant)")
	f.StringVar(&h.Until, "until", "", "last day, as 2026-03-31 (default: until it is released)")
	_ = cmd.MarkFlagRequired("reason") // the flag exists
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h.Subject = args[0]
		return wire.PlaceHold(cmd.Context(), options(), h)
	}
	return cmd
}

func releaseHoldCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "release ID",
		Short:   "End a legal hold",
		Example: "  backbone holds release 01JQ8E6Z6G3V5T8C9N2M4K7R1P",
		Args:    cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.ReleaseHold(cmd.Context(), options(), args[0])
	}
	return cmd
}

func listHoldsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list SUBJECT",
		Short:   "List the legal holds in force on a person",
		Example: "  backbone holds list employee:E-1 --json",
		Args:    cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.ListHolds(cmd.Context(), options(), args[0])
	}
	return cmd
}
