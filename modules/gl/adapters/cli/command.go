// Package cli holds the terminal commands of the general ledger beyond those that are made
// from its read models: Export writes the journals for an auditor's own tool. It calls a
// server through its HTTP API only.
package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Command is `backbone gl`.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "gl", Short: "Read and export the general ledger"}
	cmd.AddCommand(exportCommand())
	return cmd
}

type exportFlags struct {
	server, token, format, basis, file string
	Options
}

func exportCommand() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Export all journals as an hledger file",
		Long: `Write the journals of a legal entity as an hledger journal: one transaction for each
journal, with its number as code. Transactions have the tags event, intent,
correlation and recorded, postings have a tag for each dimension. Descriptions are
left out, since they may name persons.

One file cannot hold both currencies of a line, so there are two bases:
  functional   every posting in the functional currency
  transaction  every posting in its own currency, exchange differences as 0
Check the result with: hledger -f FILE check --strict

backbone gl journal-lines --csv writes the same lines as CSV.`,
		Example: `  backbone gl export --format hledger --legal-entity DEMF -o DEMF.journal
  backbone gl export --format hledger --basis transaction --legal-entity DEMF --as-of 2026-03-31 --known-at seq:4711 -o march.journal`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.server, "server", cmp.Or(os.Getenv("BACKBONE_SERVER"), "http://127.0.0.1:8080"), "server's URL (environment BACKBONE_SERVER)")
	flags.Lookup("server").DefValue = "http://127.0.0.1:8080"
	flags.StringVar(&f.token, "token", os.Getenv("BACKBONE_TOKEN"), "access token (environment BACKBONE_TOKEN)")
	flags.Lookup("token").DefValue = "" // the help must not print the token of the environment
	flags.StringVar(&f.LegalEntity, "legal-entity", os.Getenv("BACKBONE_LEGAL_ENTITY"), "code of the legal entity (required; environment BACKBONE_LEGAL_ENTITY)")
	flags.Lookup("legal-entity").DefValue = ""
	flags.StringVar(&f.format, "format", "", "form of the file: hledger")
	flags.StringVar(&f.basis, "basis", "functional", "currency of the postings: functional or transaction")
	flags.StringVar(&f.AsOf, "as-of", "", "journals effective on this day or before, as 2026-03-31 (default today)")
	flags.StringVar(&f.KnownAt, "known-at", "", "as known then: an RFC 3339 time or seq:<n> (default now)")
	flags.StringVarP(&f.file, "output", "o", "", "file to write; - is standard output")
	_ = cmd.MarkFlagRequired("format")
	_ = cmd.MarkFlagRequired("output")
	return cmd
}

// usageError is a wrong command line, which ends the process with code 2.
type usageError struct{ error }

// ExitCode is 2.
func (usageError) ExitCode() int { return 2 }

func (e usageError) Unwrap() error { return e.error }

func (f *exportFlags) run(cmd *cobra.Command) error {
	f.Functional = f.basis == "functional"
	switch {
	case f.format != "hledger":
		return usageError{fmt.Errorf("--format is hledger, not %q", f.format)}
	case !f.Functional && f.basis != "transaction":
		return usageError{fmt.Errorf("--basis is functional or transaction, not %q", f.basis)}
	case f.LegalEntity == "":
		return usageError{fault.New(fault.Invalid, "request.parameter_missing", "no legal entity; set BACKBONE_LEGAL_ENTITY or --legal-entity")}
	case f.token == "":
		return fault.New(fault.Unauthenticated, "client.token_missing", "no access token; set BACKBONE_TOKEN or --token")
	}
	api, err := client.New(client.Config{Server: f.server, Token: f.token, Reason: os.Getenv("BACKBONE_ACCESS_REASON")})
	if err != nil {
		return err
	}
	if out, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		f.Progress = func(done, total uint64) { drawProgress(out, done, total) }
	}
	if f.file == "-" {
		_, err = Export(cmd.Context(), api, cmd.OutOrStdout(), f.Options)
		return err
	}
	return f.writeFile(cmd, api)
}

// writeFile writes the file under another name and renames it when it is complete.
func (f *exportFlags) writeFile(cmd *cobra.Command, api API) (err error) {
	cannot := func(err error) error {
		return fault.New(fault.FailedPrecondition, "file.not_written", "the file cannot be written; check that its folder is there and has room").WithCause(err)
	}
	file, err := os.CreateTemp(filepath.Dir(f.file), filepath.Base(f.file)+".*.part")
	if err != nil {
		return cannot(err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
		}
	}()
	journals, err := Export(cmd.Context(), api, file, f.Options)
	if err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return cannot(err)
	}
	if err := file.Close(); err != nil {
		return cannot(err)
	}
	if err := os.Rename(file.Name(), f.file); err != nil {
		return cannot(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d journals written; check them with hledger -f %s check --strict\n", journals, f.file)
	return err
}

// drawProgress redraws a bar on a terminal. The export follows the log, so its measure is
// the sequence.
func drawProgress(out io.Writer, done, total uint64) {
	const width, clearLine = 24, "\r\x1b[K"
	full := uint64(width)
	if total > 0 {
		full = min(width*done/total, width)
	}
	fmt.Fprintf(out, "%s[%-*s] sequence %d / %d", clearLine, width, "========================"[:full], done, total)
	if done >= total {
		fmt.Fprintln(out)
	}
}
