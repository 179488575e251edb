package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

func keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Operate the keys that wrap the keys of persons",
		Long: "Every tenant has a key in the key service that wraps the keys of its persons. Replacing\n" +
			"it keeps backups from before an erasure from undoing the erasure.\n" +
			"These commands need the configuration of a server, with the eraser's address.",
	}
	cmd.AddCommand(listKeysCommand(), rotateKeysCommand(), exportKeysCommand(), restoreKeysCommand())
	return cmd
}

const tenantHelp = "only this tenant"

func listKeysCommand() *cobra.Command {
	var o keysOptions
	cmd := databaseCommand(&cobra.Command{
		Use:   "list",
		Short: "Show the epochs, and how many keys each wraps",
		Example: "  backbone keys list\n" +
			"  backbone keys list --config /etc/backbone.yaml --tenant acme --json",
	}, &o.databaseOptions, func(ctx context.Context) error { return listKeys(ctx, o) })
	cmd.Flags().StringVar(&o.Tenant, "tenant", "", tenantHelp)
	return cmd
}

func rotateKeysCommand() *cobra.Command {
	var o keysOptions
	cmd := databaseCommand(&cobra.Command{
		Use:   "rotate",
		Short: "Begin a new epoch and end the old one",
		Long: "rotate makes a new key in the key service, wraps the keys of all persons with it, proves\n" +
			"that they open and that an export of the key store restores, and schedules the old key's\n" +
			"destruction. The old key opens nothing from that moment on; the export in\n" +
			"erasure.export_directory is then the only way to make an older backup readable, without\n" +
			"the erased. It may be interrupted and run again at any time; servers keep running.",
		Example: "  backbone keys rotate\n" +
			"  backbone keys rotate --config /etc/backbone.yaml --tenant acme",
	}, &o.databaseOptions, func(ctx context.Context) error { return rotateKeys(ctx, o) })
	cmd.Flags().StringVar(&o.Tenant, "tenant", "", tenantHelp+" (default: every tenant)")
	return cmd
}

func exportKeysCommand() *cobra.Command {
	var o keysOptions
	return databaseCommand(&cobra.Command{
		Use:   "export",
		Short: "Write the key store to the folder of exports",
		Long: "export writes all tables of the key store to erasure.export_directory and reads them\n" +
			"back. The keys in it are wrapped: without the key service they open nothing. Rotations\n" +
			"export by themselves.",
		Example: "  backbone keys export\n" +
			"  backbone keys export --config /etc/backbone.yaml --json",
	}, &o.databaseOptions, func(ctx context.Context) error { return exportKeys(ctx, o) })
}

func restoreKeysCommand() *cobra.Command {
	var o keysOptions
	cmd := databaseCommand(&cobra.Command{
		Use:   "restore",
		Short: "Bring keys back after the database was restored from a backup",
		Long: "After a database was restored, its keys may be wrapped with keys that the key service has\n" +
			"destroyed since. restore replaces those from the newest export, and adds keys that the\n" +
			"backup does not know, and says whether erasures are missing: run\n" +
			"`backbone erasure replay` then. A database that lacks nothing stays as it is.",
		Example: "  backbone keys restore --config /etc/backbone.yaml\n" +
			"  backbone keys restore --export 12",
	}, &o.databaseOptions, func(ctx context.Context) error { return restoreKeys(ctx, o) })
	cmd.Flags().Uint64Var(&o.Export, "export", 0, "number of the export (default: the newest)")
	return cmd
}

func replayCommand() *cobra.Command {
	var o keysOptions
	cmd := databaseCommand(&cobra.Command{
		Use:   "replay",
		Short: "Erase again the persons whose erasures a restored database lacks",
		Long: "replay goes through the signed receipts in erasure.export_directory and fences and\n" +
			"destroys again what this database still has of the persons they name. It may be\n" +
			"run at any time. Until it has run, servers on a restored database withhold personal data.",
		Example: "  backbone erasure replay\n" +
			"  backbone erasure replay --config /etc/backbone.yaml --vkey \"$(cat receipts.vkey)\"",
	}, &o.databaseOptions, func(ctx context.Context) error { return replayErasures(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Verifier, "vkey", nil, "accept receipts signed with these keys only (default: those in the folder of exports)")
	return cmd
}

// keysOptions are the flags of `backbone keys` and `backbone erasure replay`.
type keysOptions struct {
	databaseOptions
	Tenant   string // "" is all
	Export   uint64 // number; 0 is the newest
	Verifier []string
}

// withKeys opens the keys for f and closes them afterwards.
func withKeys(ctx context.Context, o keysOptions, f func(*wire.Keyring) error) (err error) {
	k, err := wire.OpenKeyring(ctx, o.Config, o.err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	return f(k)
}

// progress returns a function that shows steps: on a terminal a bar for each step with a total,
// elsewhere a line for each step.
func (o *keysOptions) progress() keyrotation.Progress {
	show := newProgress(o.err, o.terminal)
	return func(s keyrotation.Step) {
		title := s.Title
		if s.TenantID != "" {
			title = s.TenantID + ": " + title
		}
		if o.terminal && s.Total == 0 {
			return // a bar needs a total
		}
		show.report(title, int(s.Done), int(s.Total))
		if o.terminal && s.Done >= s.Total {
			show = newProgress(o.err, o.terminal)
		}
	}
}

// epochLine is a KEK in the answer of `backbone keys list`.
type epochLine struct {
	TenantID string         `json:"tenant_id"`
	Epoch    uint32         `json:"epoch"`
	State    ports.KEKState `json:"state"`
	Keys     int64          `json:"keys"` // wrapped with it
	KMSKey   string         `json:"kms_key"`
}

// listKeys prints the KEKs and the number of keys that each wraps.
func listKeys(ctx context.Context, o keysOptions) error {
	return withKeys(ctx, o, func(k *wire.Keyring) error {
		keks, err := k.KEKs.KEKs(ctx, o.Tenant)
		if err != nil {
			return err
		}
		lines := []epochLine{}
		for _, kek := range keks {
			n, err := k.KEKs.CountWrappedWith(ctx, kek.TenantID, kek.Epoch)
			if err != nil {
				return err
			}
			lines = append(lines, epochLine{kek.TenantID, kek.Epoch, kek.State, n, kek.KeyID})
		}
		return o.show(map[string]any{"epochs": lines}, func(p *page) {
			p.row("TENANT", "EPOCH", "STATE", "KEYS", "KEY IN THE KEY SERVICE")
			for _, l := range lines {
				p.row(l.TenantID, l.Epoch, l.State, l.Keys, l.KMSKey)
			}
		})
	})
}

// rotateKeys rotates the KEK of a tenant; without one, the KEKs of all tenants.
func rotateKeys(ctx context.Context, o keysOptions) error {
	return withKeys(ctx, o, func(k *wire.Keyring) error {
		tenants := []string{o.Tenant}
		if o.Tenant == "" {
			keks, err := k.KEKs.KEKs(ctx, "")
			if err != nil {
				return err
			}
			tenants = tenants[:0]
			for _, kek := range keks {
				tenants = append(tenants, kek.TenantID)
			}
			slices.Sort(tenants)
			tenants = slices.Compact(tenants)
		}
		if len(tenants) == 0 {
			return fault.New(fault.NotFound, "keys.kek_missing", "no tenant has a key that wraps keys yet; nothing to rotate")
		}
		done := []keyrotation.Outcome{}
		var failures []error
		for _, tenantID := range tenants {
			out, err := k.Rotation.Rotate(ctx, tenantID, o.progress())
			if err != nil {
				failures = append(failures, err)
				continue
			}
			done = append(done, out)
			if !o.json {
				fmt.Fprintln(o.out, describeRotation(out))
			}
		}
		if o.json {
			failures = append(failures, printJSON(o.out, map[string]any{"rotated": done, "failed": len(tenants) - len(done)}))
		}
		return errors.Join(failures...)
	})
}

func describeRotation(r keyrotation.Outcome) string {
	text := fmt.Sprintf("%s: epoch %d is active, %s wrapped again. Export %d of the key store restores.\nEpoch %d opens nothing any more and is destroyed on %s",
		r.TenantID, r.Active, counted(r.Rewrapped, "key"), r.Export, r.Ended, r.DeletionAt.UTC().Format(time.DateOnly))
	if r.Covers == 0 {
		return text + "."
	}
	return text + fmt.Sprintf("; after that no backup can undo the erasures up to receipt %d.", r.Covers)
}

// exportKeys exports the key store to the export store.
func exportKeys(ctx context.Context, o keysOptions) error {
	return withKeys(ctx, o, func(k *wire.Keyring) error {
		e, err := k.Rotation.Export(ctx, o.progress())
		if err != nil {
			return err
		}
		return o.show(e, func(p *page) {
			p.line("Export %d: %s in %s.", e.Number, counted(e.Lines, "line"), counted(len(e.Parts), "part"))
		})
	})
}

// restoreKeys brings keys back from an export after the key store was restored from a
// backup.
func restoreKeys(ctx context.Context, o keysOptions) error {
	return withKeys(ctx, o, func(k *wire.Keyring) error {
		out, err := k.Rotation.Restore(ctx, o.Export, o.progress())
		if err != nil {
			return err
		}
		// Also without keys: an earlier restore may have been cut off before this.
		if err := wire.RebuildIndex(ctx, o.Config); err != nil {
			return err
		}
		withheld := k.Gate.Check(ctx)
		if withheld != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		return o.show(map[string]any{"export": out.Export, "keys": out.Keys, "dead_epochs": len(out.Dead), "receipts_behind": withheld != nil}, func(p *page) { p.line("%s", strings.TrimSuffix(describeRestore(out, withheld), "\n")) })
	})
}

const afterBackup = "Erasure requests that were made after the backup are not in the database; their receipts and certificates are in the folder of exports.\n"

// describeRestore reports which keys were restored and whether the gate still withholds personal
// data. The two are independent: a database may have all keys and lack erasures, or the reverse.
func describeRestore(r keyrotation.Restored, withheld error) string {
	text := fmt.Sprintf("Nothing came from export %d: the database lacks no key that is in it.\n", r.Export)
	if r.Keys > 0 {
		verb := "are"
		if len(r.Dead) == 1 {
			verb = "is"
		}
		text = fmt.Sprintf("%s came from export %d; %s %s dead.\n", counted(r.Keys, "key"), r.Export, counted(len(r.Dead), "epoch"), verb)
	}
	if withheld == nil {
		text += "No erasure is forgotten: the database knows all receipts in the folder of exports.\n"
	} else {
		why := withheld.Error()
		if f, ok := fault.As(withheld); ok {
			why = f.Detail
		}
		text += "Until the next step is done, personal data is withheld: " + why + ".\n"
	}
	if r.Keys > 0 || withheld != nil {
		text += afterBackup
	}
	return text
}

// replayErasures repeats the erasures that have a receipt outside the database and that the
// database lacks.
func replayErasures(ctx context.Context, o keysOptions) error {
	return withKeys(ctx, o, func(k *wire.Keyring) error {
		r, err := o.replayReceipts(ctx, k)
		if err != nil {
			return err
		}
		return o.show(r, func(p *page) { p.line("%s", strings.TrimSuffix(describeReplay(r.Receipts, r.Lost), "\n")) })
	})
}

// replayedReceipts are the result of a replay.
type replayedReceipts struct {
	Receipts int `json:"receipts"`
	Lost     int `json:"requests_lost"` // requests that the database does not have
}

func (o *keysOptions) replayReceipts(ctx context.Context, k *wire.Keyring) (out replayedReceipts, err error) {
	keys := o.Verifier
	if len(keys) == 0 {
		if keys, err = k.VerifierKeys(ctx); err != nil {
			return out, err
		}
	}
	show := newProgress(o.err, o.terminal)
	var receipts []erasure.Receipt
	_, err = k.Replay(ctx, keys, func(done, total int, r erasure.Receipt) {
		receipts = append(receipts, r)
		show.report("Receipts", done, total)
	})
	if err != nil {
		return out, err
	}
	if err := wire.ForgetReplayed(ctx, o.Config, receipts); err != nil {
		return out, err
	}
	out.Receipts = len(receipts)
	out.Lost, err = lostRequests(ctx, k.Erasures, receipts)
	return out, err
}

// erasureRequests reads requests. ports.ErasureRegister has it.
type erasureRequests interface {
	Erasure(ctx context.Context, tenantID string, id event.ID) (ports.ErasureRequest, error)
}

// lostRequests counts the receipts whose requests the database does not have.
func lostRequests(ctx context.Context, register erasureRequests, receipts []erasure.Receipt) (lost int, err error) {
	for _, r := range receipts {
		if _, err := register.Erasure(ctx, r.TenantID, r.RequestID); err != nil {
			if fault.KindOf(err) != fault.NotFound {
				return lost, err
			}
			lost++
		}
	}
	return lost, nil
}

func describeReplay(receipts, lost int) string {
	text := fmt.Sprintf("%d receipts were replayed; the persons they name stay erased. Servers notice within a minute.\n", receipts)
	switch receipts {
	case 0:
		text = "There are no receipts in the folder of exports: no person was erased.\n"
	case 1:
		text = "1 receipt was replayed; the person it names stays erased. Servers notice within a minute.\n"
	}
	if lost > 0 {
		text += fmt.Sprintf("The database lacks %s of these erasures. ", counted(lost, "request")) + afterBackup +
			"Requests of that time that had no receipt yet have to be made again.\n"
	}
	return text
}
