package wire

import (
	"context"
	"strings"
	"sync"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// verifierKeyFolder is the folder of the signers' public keys in the export store. Verifiers
// read them there, so that they do not need the key service.
const verifierKeyFolder = "verifier-keys/"

// noteSigner signs notes under a name with one key of the key service. It creates the key on first use, so that a
// node starts while the service is unavailable.
type noteSigner struct {
	name    string
	alias   string
	rotator ports.KeyLifecycle
	signer  ports.Signer
	exports ports.ExportStore

	opening ports.Lock // guards opened
	opened  *signednote.Signer
}

// newReceiptSigner makes the signer of receipts, certificates and notices of epochs.
func newReceiptSigner(logName string, keys Keys) *noteSigner {
	return newNoteSigner("receipts."+globallog.SignerName(logName), aliasPrefix(logName)+"/receipts", keys)
}

// newCheckpointSigners makes the signers of checkpoints, by origin. They have one key.
func newCheckpointSigners(logName string, keys Keys) func(origin string) ports.NoteSigner {
	var mu sync.Mutex
	signers := map[string]*noteSigner{}
	return func(origin string) ports.NoteSigner {
		mu.Lock()
		defer mu.Unlock()
		if signers[origin] == nil {
			signers[origin] = newNoteSigner(origin, aliasPrefix(logName)+"/checkpoints", keys)
		}
		return signers[origin]
	}
}

func newNoteSigner(name, alias string, keys Keys) *noteSigner {
	return &noteSigner{opening: ports.NewLock(), name: name, alias: alias, rotator: keys.KMS, signer: keys.Signer, exports: keys.Exports}
}

// open finds or creates the key and writes its public half to the export store.
func (s *noteSigner) open(ctx context.Context) (*signednote.Signer, error) {
	if err := s.opening.Acquire(ctx); err != nil {
		return nil, err
	}
	defer s.opening.Release()
	if s.opened != nil {
		return s.opened, nil
	}
	key, err := s.rotator.Create(ctx, s.alias, ports.SignMessages)
	if err != nil {
		return nil, err
	}
	if key.Purpose != ports.SignMessages || key.State != ports.KeyEnabled {
		return nil, fault.New(fault.FailedPrecondition, "kms.signing_key_unusable", "the key %s of the key service cannot sign; enable it, or cancel its deletion", s.alias)
	}
	signer, err := signednote.NewSigner(s.name, key.ID, s.signer)
	if err != nil {
		return nil, err
	}
	public, err := signer.VerifierKey(ctx)
	if err != nil {
		return nil, err
	}
	hash, _, _ := strings.Cut(strings.TrimPrefix(public, s.name+"+"), "+")
	if err := s.exports.PutIfAbsent(ctx, verifierKeyFolder+hash, []byte(public+"\n")); err != nil {
		return nil, err
	}
	s.opened = signer
	return signer, nil
}

// SignNote implements ports.NoteSigner.
func (s *noteSigner) SignNote(ctx context.Context, text []byte) ([]byte, error) {
	signer, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	return signer.SignNote(ctx, text)
}

// VerifierKey implements ports.NoteSigner.
func (s *noteSigner) VerifierKey(ctx context.Context) (string, error) {
	signer, err := s.open(ctx)
	if err != nil {
		return "", err
	}
	return signer.VerifierKey(ctx)
}
