// Command backbone is the event backbone of an ERP: server, tools and the
// embedded default in one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	wire.TuneMemory()
	if err := wire.ForbidCoreDumps(); err != nil {
		fmt.Fprintln(os.Stderr, "backbone: core dumps could not be turned off, so keys may reach the disk if this process dies:", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "backbone:", text)
		}
		return coded.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "backbone:", describe(err))
	return 1
}

// describe words an error for a terminal, on one line: a fault's detail first, its
// code after, and the parameter or member it is about, which the detail of a server
// leaves to the document that carries it. Where the fault only says that something is away or broken, whoever
// sits here is the operator, so the cause follows.
func describe(err error) string {
	f, ok := fault.As(err)
	if !ok {
		return oneLine(err)
	}
	about := f.Code
	if field := strings.Join(strings.Fields(f.Field), " "); field != "" {
		about += ", " + field
	}
	text := fmt.Sprintf("%s (%s)", f.Detail, about)
	if cause := f.Unwrap(); cause != nil && (f.Kind == fault.Unavailable || f.Kind == fault.Internal) {
		text += ": " + oneLine(cause)
	}
	return text
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// exit is an error that carries the process's exit code.
type exit struct {
	code int
	err  error
}

func (e exit) Error() string {
	if e.err == nil {
		return ""
	}
	return describe(e.err)
}

func (e exit) Unwrap() error { return e.err }

// ExitCode is the code the process ends with.
func (e exit) ExitCode() int { return e.code }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "backbone",
		Short: "The event backbone of an ERP",
		Long: "Backbone turns business intents into immutable, ordered, hash-chained events\n" +
			"on PostgreSQL, and answers who did what, when, why and caused by what.",
		Example: "  backbone dev --sample            try it: an own PostgreSQL, demo books, sample invoices\n" +
			"  backbone verify --data-dir DIR   prove that nobody rewrote history\n" +
			"  backbone trace ID                from a journal back to the paper and the persons\n" +
			"  backbone entity TYPE ID          what the events say of a vendor, an invoice, an account",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       configs.Version,
	}
	root.AddCommand(devCommand(), serveCommand(), kmsdCommand(), migrateCommand(), bootstrapCommand(), enrollCommand(), erasureCommand(), holdsCommand(), keysCommand(), verifyCommand(), verifyCertificateCommand(), exportCommand(), exportLogCommand(), fanoutCommand(), subscriptionsCommand(), webhooksCommand(), projectionsCommand(), deadLettersCommand(), redactCommand(), doctorCommand(), traceCommand(), entityCommand(), typesCommand(), streamsCommand(), apCommand(), tailCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  backbone version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "backbone", configs.Version)
			return err
		},
	}
}
