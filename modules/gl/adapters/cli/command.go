// Package cli holds the terminal commands of the general ledger beyond those that are made
// from its read models: Export writes the journals for an auditor's own tool, ImportStatements,
// Discard and Match work on bank accounts. It calls a server through its HTTP API only.
package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Command is `backbone gl`.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "gl", Short: "Read and export the general ledger"}
	cmd.AddCommand(exportCommand(), importStatementCommand(), discardStatementCommand(), matchCommand())
	return cmd
}

// The formats of an export.
const (
	formatHledger = "hledger"
	formatSAFT    = "saf-t"
	formatGoBD    = "gobd"
)

type exportFlags struct {
	server, token, format, basis, to, company, output string
	Options
}

func exportCommand() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Export the books for auditors: hledger, SAF-T or GoBD",
		Long: `Write the books of a legal entity for an auditor's own tool. All of an export is as
known at one sequence, which it names, and the same question gives the same bytes.

  hledger  one file for hledger: a transaction for each journal, with its number as
           code. Transactions have the tags event, intent, correlation and recorded,
           postings have a tag for each dimension. Descriptions are left out, since
           they may name persons. One file cannot hold both currencies of a line, so
           --basis is functional (every posting in the functional currency) or
           transaction (every posting in its own, exchange differences as 0).
           Check it with: hledger -f FILE check --strict
  saf-t    one XML file, the Norwegian SAF-T Financial 1.30, for --from to --to.
           It needs --company, a file with what the log does not know of a company.
  gobd     a new folder with CSV files and their description index.xml, the data
           access Z3 of the GoBD, for --from to --to.

Names of natural persons are masked unless the token may read them.
backbone gl journal-lines --csv writes the lines as one CSV file.`,
		Example: `  backbone gl export --format hledger --legal-entity DEMF -o DEMF.journal
  backbone gl export --format hledger --basis transaction --legal-entity DEMF --as-of 2026-03-31 --known-at seq:4711 -o march.journal
  backbone gl export --format saf-t --legal-entity DEMF --from 2026-01-01 --to 2026-12-31 --company company.json -o 2026.xml
  backbone gl export --format gobd --legal-entity DEMF --from 2026-01-01 --to 2026-12-31 -o 2026-z3`,
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
	flags.StringVar(&f.format, "format", "", "form of the export: hledger, saf-t or gobd")
	flags.StringVar(&f.basis, "basis", "functional", "hledger: currency of the postings, functional or transaction")
	flags.StringVar(&f.From, "from", "", "saf-t, gobd: first posting date, as 2026-01-01")
	flags.StringVar(&f.to, "to", "", "last posting date, as 2026-03-31; another name of --as-of")
	flags.StringVar(&f.AsOf, "as-of", "", "journals effective on this day or before, as 2026-03-31 (default today)")
	flags.StringVar(&f.KnownAt, "known-at", "", "as known then: an RFC 3339 time or seq:<n> (default now)")
	flags.StringVar(&f.company, "company", "", "saf-t, gobd: JSON file with the company's registration, address, contact and codes")
	flags.StringVarP(&f.output, "output", "o", "", "file to write, - is standard output; gobd: new folder")
	_ = cmd.MarkFlagRequired("format")
	_ = cmd.MarkFlagRequired("output")
	cmd.MarkFlagsMutuallyExclusive("to", "as-of")
	return cmd
}

// usageError is a wrong command line, which ends the process with code 2.
type usageError struct{ error }

// ExitCode is 2.
func (usageError) ExitCode() int { return 2 }

func (e usageError) Unwrap() error { return e.error }

func (f *exportFlags) run(cmd *cobra.Command) error {
	f.AsOf = cmp.Or(f.AsOf, f.to)
	if err := f.check(); err != nil {
		return err
	}
	var company Company
	if f.company != "" {
		var err error
		if company, err = ReadCompany(f.company); err != nil {
			return usageError{err}
		}
	}
	api, err := client.New(client.Config{Server: f.server, Token: f.token, Reason: os.Getenv("BACKBONE_ACCESS_REASON")})
	if err != nil {
		return err
	}
	if out, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		f.Progress = func(done, total uint64) { drawProgress(out, done, total) }
	}
	f.Version = cmd.Root().Version
	ctx := cmd.Context()
	if f.format == formatGoBD {
		result, err := WriteGoBD(ctx, api, f.output, f.Options, company)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d journals in %d files written to %s; its index.xml describes them\n", result.Journals, result.Files, f.output)
		return err
	}
	var summary string
	write := func(out io.Writer) error {
		if f.format == formatHledger {
			journals, err := WriteHledger(ctx, api, out, f.Options, f.basis == "functional")
			summary = fmt.Sprintf("%d journals written; check them with hledger -f %s check --strict", journals, f.output)
			return err
		}
		result, err := WriteSAFT(ctx, api, out, f.Options, company)
		summary = result.summary()
		return err
	}
	if f.output == "-" {
		return write(cmd.OutOrStdout())
	}
	if err := writeFile(f.output, write); err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), summary)
	return err
}

// check checks the command line. Errors are of type usageError, apart from a missing token.
func (f *exportFlags) check() error {
	isFile := f.format == formatHledger || f.format == formatSAFT
	switch {
	case !isFile && f.format != formatGoBD:
		return usageError{fmt.Errorf("--format is hledger, saf-t or gobd, not %q", f.format)}
	case f.basis != "functional" && f.basis != "transaction":
		return usageError{fmt.Errorf("--basis is functional or transaction, not %q", f.basis)}
	case f.format == formatHledger && f.From != "":
		return usageError{errors.New("--format hledger has all journals up to --as-of; leave --from out, and use hledger's own -b")}
	case f.format != formatHledger && f.From == "":
		return usageError{fmt.Errorf("--format %s needs the first day; add --from, as 2026-01-01", f.format)}
	case f.format == formatSAFT && f.company == "":
		return usageError{errors.New("--format saf-t needs --company, a file with the company's registration number and contact; docs/export.md shows one")}
	case !isFile && f.output == "-":
		return usageError{errors.New("--format gobd writes a folder; name a new one with -o")}
	case f.LegalEntity == "":
		return usageError{fault.New(fault.Invalid, "request.parameter_missing", "no legal entity; set BACKBONE_LEGAL_ENTITY or --legal-entity")}
	}
	for name, text := range map[string]string{"--from": f.From, "--to": f.AsOf} {
		if text == "" {
			continue
		}
		if _, err := event.ParseDate(text); err != nil {
			return usageError{fmt.Errorf("%s is a date such as 2026-03-31, not %q", name, text)}
		}
	}
	if f.From != "" && f.AsOf != "" && f.From > f.AsOf {
		return usageError{fmt.Errorf("--from %s is after --to %s; swap them", f.From, f.AsOf)}
	}
	if f.token == "" {
		return fault.New(fault.Unauthenticated, "client.token_missing", "no access token; set BACKBONE_TOKEN or --token")
	}
	return nil
}

// notWritten is the fault of a file or folder that cannot be written.
func notWritten(err error) error {
	return fault.New(fault.FailedPrecondition, "file.not_written", "the file cannot be written; check that its folder is there and has room").WithCause(err)
}

// asNotWritten gives errors of the file system their fault and keeps all others.
func asNotWritten(err error) error {
	var ofFile *fs.PathError
	if _, isFault := fault.As(err); !isFault && errors.As(err, &ofFile) {
		return notWritten(err)
	}
	return err
}

// writeFile writes the file under another name and renames it when it is complete.
func writeFile(name string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	if err != nil {
		return notWritten(err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
		}
	}()
	if err := write(file); err != nil {
		return asNotWritten(err)
	}
	if err := file.Sync(); err != nil {
		return notWritten(err)
	}
	if err := file.Close(); err != nil {
		return notWritten(err)
	}
	if err := os.Rename(file.Name(), name); err != nil {
		return notWritten(err)
	}
	return nil
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
