package cli

import (
	"context"
	"os"
	"path/filepath"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/adapters/plugin"
)

// sampleEntity is the legal entity in which the samples are booked.
const sampleEntity = "DEMF"

// demoSession describes a running `backbone dev` to the demonstrations of modules.
func demoSession(o devOptions, dir string, state *devState, file devFile) plugin.Session {
	return plugin.Session{
		Program: os.Args[0], DataDir: dir, Server: file.HTTP, LegalEntity: sampleEntity, Tokens: file.Tokens, SampleDone: state.SampleDone, Out: o.Out,
		Trace: func(ctx context.Context, id string) error {
			auditor, err := client.New(client.Config{Server: file.HTTP, Token: file.Tokens["auditor"]})
			if err != nil {
				return err
			}
			t := trace{session: session{auditor, output{out: o.Out}}, legalEntity: sampleEntity}
			return t.run(ctx, id)
		},
	}
}

// runSample runs the samples of the modules once in the life of a data folder.
func runSample(ctx context.Context, o devOptions, dir string, state *devState, file devFile, printLine func(string, ...any)) error {
	if state.SampleDone {
		printLine("\nThe sample documents are in the books of %s already.", sampleEntity)
		return nil
	}
	for _, m := range o.Modules {
		if m.Demo.Sample == nil {
			continue
		}
		if err := m.Demo.Sample(ctx, demoSession(o, dir, state, file)); err != nil {
			return err
		}
	}
	state.SampleDone = true
	return writeJSON(filepath.Join(dir, devStateName), state)
}

// printDevHints prints commands to try next.
func printDevHints(printLine func(string, ...any), modules []plugin.Module, s plugin.Session) {
	printLine("\nTry next, in another terminal (%s has a token for every role; these are the auditor's and the importer's):", filepath.Join(s.DataDir, devFileName))
	printLine("  export BACKBONE_SERVER=%s BACKBONE_TOKEN=%s", s.Server, s.Tokens["auditor"])
	for _, m := range modules {
		if m.Demo.Hints == nil {
			continue
		}
		for _, hint := range m.Demo.Hints(s) {
			printLine("  %s", hint)
		}
	}
	if !s.SampleDone {
		printLine("  %s dev --sample --data-dir %s      (after Ctrl-C here: the sample invoices)", s.Program, s.DataDir)
	}
	printLine("  %s verify --data-dir %s", s.Program, s.DataDir)
	printLine("Press Ctrl-C to stop.")
}
