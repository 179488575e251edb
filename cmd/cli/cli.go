// Package cli is the command line: one file for each noun, with the flags of its commands,
// their calls and their output (output.go). newRoot lists the commands, those of the modules
// included: a new command is a function here and an entry there. Run executes a command line and
// turns its error into an exit code.
//
// Commands that talk to a server call it over HTTP (client.go). Commands that work on
// the databases themselves, such as migrate, verify, doctor and keys, open them here or
// through cmd/wire, which composes the server. cmd/app calls Run with the modules of the
// program.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Run executes a command line, without the program's name, until the command ends. SIGINT and
// SIGTERM cancel the command's context once; nothing ends a command that does not return then.
// Commands that open the server's databases use the modules.
//
// Run returns the exit code: 0 for success, 1 for a failure, 2 for an unknown command or a wrong
// number of arguments. Commands with further meanings, such as verify, state them in their help.
func Run(args []string, modules []plugin.Module) int {
	TuneMemory()
	if err := forbidCoreDumps(); err != nil {
		fmt.Fprintln(os.Stderr, "backbone: core dumps could not be turned off, so keys may reach the disk if this process dies:", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(modules)
	root.SetArgs(args)
	err := unknownCommand(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
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

// describe renders an error on one line for a terminal: a fault's detail, its code, and the
// parameter or member that is wrong, which a server's detail does not repeat. The cause follows
// if a part is unavailable or broken, since an operator has to repair it.
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

// unknownCommand returns an error with exit code 2 if the command line names a command that does
// not exist, at any level. Cobra alone would print the help of the parent command and exit 0.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil // cobra adds these hidden commands when it executes them
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	cmd, rest, err := root.Find(args)
	if err != nil {
		cmd, rest = root, args
	} else if cmd.Name() == "help" {
		return unknownCommand(root, rest)
	} else if cmd.Runnable() {
		return nil
	}
	for _, name := range rest {
		switch {
		case strings.HasPrefix(name, "-") && err == nil:
			return nil // cobra checks flags
		case strings.HasPrefix(name, "-"):
			continue
		}
		cmd.SuggestionsMinimumDistance = 2
		next := fmt.Sprintf("see `%s --help`", cmd.CommandPath())
		if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
			next = fmt.Sprintf("did you mean %s?", strings.Join(similar, ", "))
		}
		return exitError{2, fmt.Errorf("unknown command %q for %q; %s", name, cmd.CommandPath(), next)}
	}
	return nil
}

// exitError is an error that carries the process's exit code.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return describe(e.err)
}

func (e exitError) Unwrap() error { return e.err }

// ExitCode is the code the process ends with.
func (e exitError) ExitCode() int { return e.code }

func newRoot(modules []plugin.Module) *cobra.Command {
	declarations := make([]module.Module, 0, len(modules))
	for _, m := range modules {
		declarations = append(declarations, m.Module)
	}
	catalog, _ := module.Declare(nil, declarations...) // the start of a server reports what is wrong
	root := &cobra.Command{
		Use:   "backbone",
		Short: "The event backbone of an ERP",
		Long: "Backbone turns business intents into immutable, ordered, hash-chained events\n" +
			"on PostgreSQL, and answers who did what, when, why and caused by what.",
		Example: "  backbone dev --sample            try it: its own PostgreSQL, demo books, sample invoices\n" +
			"  backbone verify --data-dir DIR   prove that history was not rewritten\n" +
			"  backbone trace ID                from a journal back to the paper and the persons\n" +
			"  backbone entity TYPE ID          the state of a vendor, an invoice, an account from its events",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       configs.Version,
	}
	root.AddCommand(devCommand(modules), serveCommand(modules), kmsdCommand(), migrateCommand(modules), bootstrapCommand(modules), enrollCommand(modules, catalog.RoleNames()), revokeCommand(modules), reviewCommand(), principalsCommand(), intentsCommand(), sodCommand(), erasureCommand(), holdsCommand(), keysCommand(), verifyCommand(modules), verifyCertificateCommand(), proveCommand(), witnessCommand(), beginIncarnationCommand(modules), archiveCommand(modules), drillCommand(modules), verifyProofCommand(), exportCommand(), exportLogCommand(), fanoutCommand(), subscriptionsCommand(), webhooksCommand(), projectionsCommand(), deadLettersCommand(), redactionsCommand(), accessLogCommand(), disclosuresCommand(), personalDataCommand(), doctorCommand(modules), traceCommand(), entityCommand(), typesCommand(), streamsCommand(), tailCommand(), newCommand(), versionCommand())
	for _, m := range modules {
		if m.Command != nil {
			root.AddCommand(m.Command())
		}
	}
	addReadModelCommands(root, catalog.ReadModels())
	addFileCommands(root, catalog.Files())
	setArgumentExitCode(root)
	return root
}

// setArgumentExitCode makes commands answer a wrong number of arguments with exit code 2 and a
// pointer to their help, as unknownCommand does for unknown commands.
func setArgumentExitCode(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return exitError{2, fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		setArgumentExitCode(sub)
	}
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

// forbidCoreDumps keeps keys and opened values out of the file that the system would write when
// the process crashes.
func forbidCoreDumps() error {
	return syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
}
