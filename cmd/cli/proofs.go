package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// maxProofBytes bounds a proof, with an event of the largest size, and maxCheckpointBytes a checkpoint.
const (
	maxProofBytes      = 64 << 20
	maxCheckpointBytes = 16 << 10
)

func proveCommand() *cobra.Command {
	var o proveOptions
	var dsn, dataDir, archiveDir, server, token string
	cmd := &cobra.Command{
		Use:   "prove [EVENT]",
		Short: "Write a proof that an event was recorded, for a reader without access to the log",
		Long: "prove writes a proof (c2sp.org/tlog-proof) that the event of an id is in the log, under the newest\n" +
			"checkpoint that the key of the log signed. The proof has the event with all that its checksum covers,\n" +
			"personal values as they are sealed; \"backbone verify-proof\" checks it with the public key alone.\n" +
			"A checksum covers all earlier events of its legal entity: the proof of one proves them too.\n\n" +
			"--since writes a proof that the log begins with that of an earlier checkpoint: nothing of it was\n" +
			"changed, removed or put in since.\n\n" +
			"It reads the database; with --server it asks a server for the proof of an event that you may read,\n" +
			"without the event: it is checked with the checksum that is printed. A server with a key service signs\n" +
			"a checkpoint every few seconds.",
		Example: "  backbone prove 01M7Y528F691MH9YYK23VY42YR > invoice.tlog-proof\n" +
			"  backbone prove 01M7Y528F691MH9YYK23VY42YR --server https://backbone.example.org > invoice.tlog-proof\n" +
			"  backbone prove --since checkpoint-of-march > april.extension",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if (len(args) == 0) == (o.Since == "") {
				return fmt.Errorf("name an event to prove, or an earlier checkpoint with --since")
			}
			if len(args) > 0 {
				if o.Event, err = event.ParseID(args[0]); err != nil {
					return fault.New(fault.Invalid, "event.id_invalid", "%q is no id of an event, which has 26 letters and digits; check it", args[0])
				}
			}
			o.output = newOutput(cmd, false)
			if server != "" {
				if dsn != "" || o.Since != "" {
					return fmt.Errorf("a server proves events that you may read: leave out --dsn and --since")
				}
				s, err := connect(cmd, server, token, "client.token_missing", false)
				if err != nil {
					return err
				}
				return proveByServer(cmd.Context(), &s, o)
			}
			if o.DSN, o.Archive, err = readerAddresses(dsn, dataDir, archiveDir); err != nil {
				return err
			}
			return prove(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	readerFlags(cmd, &dsn, &dataDir)
	f.StringVar(&archiveDir, "archive", "", archiveHelp)
	f.StringVar(&o.Since, "since", "", "prove that the log begins with that of this checkpoint, as it was exported")
	f.StringVar(&server, "server", "", "ask this server, instead of reading a database")
	tokenFlag(cmd, &token)
	return cmd
}

// proveByServer writes the proof of an event that the server makes.
func proveByServer(ctx context.Context, s *session, o proveOptions) error {
	answer, err := s.GetProof(ctx, o.Event.String(), client.GetProofParams{})
	if err != nil {
		return err
	}
	fmt.Fprintf(o.err, "It is checked with \"backbone verify-proof --checksum %s\".\n", answer.Checksum)
	_, err = io.WriteString(o.out, answer.Proof)
	return err
}

// proveOptions are the flags of `backbone prove`.
type proveOptions struct {
	DSN     string
	Archive configs.Archive
	Event   event.ID
	Since   string // file of a checkpoint; "": the event is proven
	output
}

func prove(ctx context.Context, o proveOptions) error {
	store, err := wire.OpenReader(ctx, o.DSN, o.Archive)
	if err != nil {
		return err
	}
	defer store.Close()
	prover := globallog.NewProver(store.GlobalLog)
	if o.Since != "" {
		note, err := readLimited(o.Since, nil, maxCheckpointBytes)
		if err != nil {
			return checkpointUnreadable(err)
		}
		earlier, err := globallog.ParseSigned(note)
		if err != nil {
			return err
		}
		extension, err := prover.ProveExtension(ctx, domain.Checkpoint{Size: earlier.Size, Root: earlier.Root})
		if err != nil {
			return err
		}
		_, err = o.out.Write(extension.Encode())
		return err
	}
	entities, err := store.Directory.Partitions(ctx, "")
	if err != nil {
		return err
	}
	for _, le := range entities {
		found, err := store.Events.EventByID(ctx, le.Partition, o.Event)
		if fault.KindOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		head, err := store.Chains().Head(ctx, le.Partition)
		if err != nil {
			return err
		}
		place := ports.EventPosition{Partition: le.Partition, Sequence: found.Sequence}
		evidence, err := verify.EvidenceOf(ctx, store.Chains(), head, place)
		if err != nil {
			return err
		}
		proof, err := prover.Prove(ctx, place, evidence)
		if err != nil {
			return err
		}
		_, err = o.out.Write(proof.Encode())
		return err
	}
	return fault.New(fault.NotFound, "event.not_found", "the log has no event of this id; check it, and the database")
}

func checkpointUnreadable(err error) error {
	return fault.New(fault.Invalid, "global_log.checkpoint_unreadable", "a checkpoint cannot be read; check the file").WithCause(err)
}

func verifyProofCommand() *cobra.Command {
	var o verifyProofOptions
	cmd := &cobra.Command{
		Use:   "verify-proof FILE",
		Short: "Check a proof of \"backbone prove\" without a server",
		Long: "verify-proof checks a proof that an event was recorded, or that a log begins with an earlier one, and\n" +
			"prints what it shows. It needs the public key of the log and neither server nor network. The key is\n" +
			"published by the operator of the installation; get it another way than the proof.\n\n" +
			"Exit code 0: proven. 1: not proven, since something was changed or has another key. 2: nothing was\n" +
			"checked.",
		Example: "  backbone verify-proof invoice.tlog-proof --key ledger.example.org/1+2a5b…+AZ…\n" +
			"  backbone verify-proof invoice.tlog-proof --key log.vkey --json\n" +
			"  backbone verify-proof receipt.tlog-proof --key log.vkey --checksum 825d85…\n" +
			"  backbone verify-proof april.extension --key log.vkey --since checkpoint-of-march",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.File, o.In, o.output = args[0], cmd.InOrStdin(), newOutput(cmd, o.json)
			isProven, err := verifyProof(o)
			switch {
			case !isProven:
				return exitError{1, err}
			case err != nil:
				return exitError{2, err}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{2, err} })
	f := cmd.Flags()
	f.StringArrayVar(&o.Keys, "key", nil, "verifier key of the log, or a file or folder with some (required, unless --witness-policy has it)")
	f.StringVar(&o.Policy, "witness-policy", "", witnessPolicyHelp)
	f.StringVar(&o.Checksum, "checksum", "", "checksum of the event in hex, from the answer to its append, where the proof has no event")
	f.StringVar(&o.Since, "since", "", "the earlier checkpoint, for a proof of \"backbone prove --since\"")
	f.BoolVar(&o.json, "json", false, "print what is proven as JSON")
	return cmd
}

// verifyProofOptions are the flags of `backbone verify-proof`.
type verifyProofOptions struct {
	File     string // "-" is In
	Keys     []string
	Policy   string // file; "": none
	Checksum string // "": that of the event in the proof
	Since    string // file of the earlier checkpoint; "": none
	In       io.Reader
	output
}

// proven is what a proof shows.
type proven struct {
	IsProven   bool              `json:"proven"`
	Code       string            `json:"code,omitempty"` // of the reason, if it shows nothing
	Checkpoint *provenCheckpoint `json:"checkpoint,omitempty"`
	Earlier    *provenCheckpoint `json:"earlier_checkpoint,omitempty"`
	Position   *domain.Position  `json:"position,omitempty"`
	Event      *provenEvent      `json:"event,omitempty"`
	Witnesses  []string          `json:"witnesses,omitempty"`
}

type provenCheckpoint struct {
	Origin string `json:"origin"`
	Size   uint64 `json:"size"`
	Root   string `json:"root_hash"`
}

func shownCheckpoint(c domain.Checkpoint) *provenCheckpoint {
	return &provenCheckpoint{c.Origin, c.Size, hex.EncodeToString(c.Root[:])}
}

type provenEvent struct {
	ID          string         `json:"id"`
	Type        string         `json:"type"`
	Tenant      string         `json:"tenant_id"`
	LegalEntity string         `json:"legal_entity"`
	Sequence    event.Sequence `json:"sequence"`
	RecordedAt  string         `json:"recorded_at"`
	Checksum    string         `json:"checksum"`
	Payload     *string        `json:"payload"` // as it was stored; null: it was redacted, or left out of the proof
}

// verifyProof checks a proof and prints what it shows. An error with isProven true means that the check could not be
// made.
func verifyProof(o verifyProofOptions) (isProven bool, err error) {
	trust, err := readTrust(o.Keys, o.Policy)
	if err != nil {
		return true, err
	}
	text, err := readLimited(o.File, o.In, maxProofBytes)
	if err != nil {
		return true, fault.New(fault.Invalid, "global_log.proof_unreadable", "the proof cannot be read; check the file").WithCause(err)
	}
	var shown proven
	if bytes.HasPrefix(text, []byte("old ")) {
		err = o.verifyExtension(text, trust, &shown)
	} else {
		err = o.verifyInclusion(text, trust, &shown)
	}
	switch fault.CodeOf(err) {
	case "note.key_invalid", "global_log.checksum_missing", "global_log.checkpoint_unreadable":
		return true, err
	}
	if shown.IsProven = err == nil; err != nil {
		shown = proven{Code: fault.CodeOf(err)}
	}
	if writeErr := o.show(shown, func(p *page) { p.proven(&shown) }); writeErr != nil {
		return true, writeErr
	}
	return err == nil, err
}

func (o *verifyProofOptions) verifyExtension(text []byte, trust trust, shown *proven) error {
	x, err := domain.ParseExtension(text)
	if err != nil {
		return err
	}
	if o.Since == "" {
		return fault.New(fault.Invalid, "global_log.checkpoint_unreadable", "this proof is about an earlier checkpoint; name it with --since")
	}
	earlier, err := readLimited(o.Since, nil, maxCheckpointBytes)
	if err != nil {
		return checkpointUnreadable(err)
	}
	from, to, err := globallog.VerifyExtension(x, earlier, signednote.Opener{}, trust.keys...)
	shown.Earlier, shown.Checkpoint = shownCheckpoint(from), shownCheckpoint(to)
	if err != nil {
		return err
	}
	_, shown.Witnesses, err = trust.open(x.Checkpoint)
	return err
}

func (o *verifyProofOptions) verifyInclusion(text []byte, trust trust, shown *proven) error {
	proof, err := domain.ParseProof(text)
	if err != nil {
		return err
	}
	checksum, err := o.checksum(proof, shown)
	if err != nil {
		return err
	}
	c, _, err := globallog.VerifyProof(proof, checksum, signednote.Opener{}, trust.keys...)
	shown.Checkpoint, shown.Position = shownCheckpoint(c), &proof.Position
	if err != nil {
		return err
	}
	_, shown.Witnesses, err = trust.open(proof.Checkpoint)
	return err
}

// checksum is the checksum that the proof is about: of the event in it, or the given one.
func (o *verifyProofOptions) checksum(proof domain.Proof, shown *proven) (sum event.Hash, err error) {
	if o.Checksum != "" {
		b, err := hex.DecodeString(o.Checksum)
		if err != nil || len(b) != len(sum) {
			return sum, fault.New(fault.Invalid, "global_log.checksum_missing", "a checksum has 64 hex digits; check --checksum")
		}
		sum = event.Hash(b)
	}
	if len(proof.Extra) == 0 {
		if o.Checksum == "" {
			return sum, fault.New(fault.Invalid, "global_log.checksum_missing", "the proof has no event; give its checksum, from the answer to its append, with --checksum")
		}
		return sum, nil
	}
	e, err := verify.OpenEvidence(proof.Extra)
	if err != nil {
		return sum, err
	}
	if o.Checksum != "" && sum != e.Checksum {
		return sum, fault.New(fault.Invalid, "global_log.not_included", "the proof is of an event with another checksum than --checksum")
	}
	shown.Event = &provenEvent{
		ID: e.ID.String(), Type: e.Type, Tenant: e.Scope.TenantID, LegalEntity: e.Scope.LegalEntity, Sequence: e.Sequence,
		RecordedAt: e.RecordedAt.UTC().Format(time.RFC3339Nano), Checksum: hex.EncodeToString(e.Checksum[:]),
	}
	if e.Payload != nil {
		payload := string(e.Payload)
		shown.Event.Payload = &payload
	}
	return e.Checksum, nil
}

// proven writes what a proof shows.
func (p *page) proven(v *proven) {
	if !v.IsProven {
		p.line("Not proven: the proof was changed, is of another event or log, or is not signed with this key.")
		return
	}
	if e := v.Event; e != nil {
		p.line("Event %s, %s, legal entity %s of tenant %s, sequence %d, recorded at %s", e.ID, e.Type, e.LegalEntity, e.Tenant, e.Sequence, e.RecordedAt)
		if e.Payload != nil {
			p.line("%s", *e.Payload)
		} else {
			p.line("Its payload is not in the proof: it was redacted, or left out. Its hash is as it was recorded.")
		}
	}
	if v.Earlier != nil {
		p.line("Proven: the log %s of %s begins with its first %d, as they were signed then.", v.Checkpoint.Origin, counted(v.Checkpoint.Size, "event"), v.Earlier.Size)
	} else {
		p.line("Proven: it is at position %d of the log %s, of which %s were signed.", *v.Position, v.Checkpoint.Origin, counted(v.Checkpoint.Size, "event"))
	}
	if len(v.Witnesses) > 0 {
		p.line("Signed by witnesses too: %s.", strings.Join(v.Witnesses, ", "))
	}
}

// trust says which signatures a reader demands.
type trust struct {
	keys   []string       // of logs and witnesses
	policy *domain.Policy // nil: no witness is demanded
}

const witnessPolicyHelp = "file of a policy (c2sp.org/tlog-policy): its logs, and the witnesses that must have signed too"

// readTrust reads verifier keys, and the policy of a file if it has a name.
func readTrust(given []string, file string) (t trust, err error) {
	if file != "" {
		text, err := readLimited(file, nil, maxCertificateBytes)
		if err != nil {
			return t, fault.New(fault.Invalid, "global_log.policy_unreadable", "the policy of witnesses cannot be read; check --witness-policy").WithCause(err)
		}
		policy, err := domain.ParsePolicy(text)
		if err != nil {
			return t, err
		}
		t.policy, t.keys = &policy, policy.Keys()
	}
	if len(given) == 0 && t.policy != nil && len(t.policy.Logs) > 0 {
		return t, nil
	}
	keys, err := verifierKeys(given)
	t.keys = append(t.keys, keys...)
	return t, err
}

// open opens a checkpoint and returns the names of the witnesses that signed it. Fault global_log.not_witnessed
// (Invalid) if the policy demands others.
func (t trust) open(note []byte) (c domain.Checkpoint, names []string, err error) {
	c, signers, err := globallog.OpenCheckpoint(note, signednote.Opener{}, t.keys...)
	if err != nil {
		return c, nil, err
	}
	if t.policy != nil && !t.policy.IsWitnessed(signers) {
		return c, nil, fault.New(fault.Invalid, "global_log.not_witnessed", "the checkpoint of %d events is not signed by the witnesses that the policy demands", c.Size)
	}
	for _, key := range signers {
		name, _, _ := strings.Cut(key, "+")
		names = append(names, name)
	}
	return c, names, nil
}

// anchors are what a global log is compared with, and when the files of the kept checkpoints were written.
type anchors struct {
	verify.Anchors
	written []time.Time
}

// readAnchors reads checkpoints that were kept outside of the database: files, export folders, and folders of
// checkpoints. Each must be signed by the log. Those that are not signed by the witnesses of the policy are left out.
func readAnchors(paths, given []string, policy string) (a anchors, err error) {
	if len(paths) == 0 && len(given) == 0 && policy == "" {
		return a, nil
	}
	trust, err := readTrust(given, policy)
	if err != nil {
		return a, err
	}
	a.IsSigned = func(note []byte) bool {
		_, _, err := globallog.OpenCheckpoint(note, signednote.Opener{}, trust.keys...)
		return err == nil
	}
	for _, path := range paths {
		if sub := filepath.Join(path, globallog.CheckpointFolder); isFolder(sub) {
			path = sub
		}
		err := filepath.WalkDir(path, func(file string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			note, err := readLimited(file, nil, maxCheckpointBytes)
			if err != nil {
				return err
			}
			c, _, err := trust.open(note)
			if fault.CodeOf(err) == "global_log.not_witnessed" {
				return nil
			}
			if f, isFault := fault.As(err); isFault {
				return fault.New(f.Kind, f.Code, "%s: %s", file, f.Detail)
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				a.Kept, a.written = append(a.Kept, c), append(a.written, info.ModTime())
			}
			return err
		})
		switch _, isFault := fault.As(err); {
		case isFault:
			return a, err
		case err != nil:
			return a, checkpointUnreadable(err)
		}
	}
	if len(paths) > 0 && len(a.Kept) == 0 {
		return a, fault.New(fault.NotFound, "global_log.checkpoint_unreadable", "there is no checkpoint, or none that the witnesses of the policy signed; check --checkpoints")
	}
	return a, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
