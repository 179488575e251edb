package awskms

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	maximumWrapped = 6144 // bytes, AWS's limit of a ciphertext
	maximumPairs   = 8
)

// checkContext refuses an empty context, which the service would accept: the wrapped key
// would open in any place.
func checkContext(bound ports.EncryptionContext) error {
	if len(bound) == 0 || len(bound) > maximumPairs {
		return requestInvalid()
	}
	for name, value := range bound {
		if name == "" || value == "" {
			return requestInvalid()
		}
	}
	return nil
}

func checkInput(bound ports.EncryptionContext, wrapped []byte) error {
	if err := checkContext(bound); err != nil {
		return err
	}
	return checkWrapped(wrapped)
}

func checkWrapped(wrapped []byte) error {
	if len(wrapped) == 0 || len(wrapped) > maximumWrapped {
		return ciphertextInvalid()
	}
	return nil
}

// Generate implements ports.DataKeys.
func (c *Client) Generate(ctx context.Context, keyID string, bound ports.EncryptionContext) (ports.DataKey, error) {
	if err := checkContext(bound); err != nil {
		return ports.DataKey{}, err
	}
	out, err := call(ctx, c, "GenerateDataKey", c.kms.GenerateDataKey, &kms.GenerateDataKeyInput{
		KeyId: aws.String(keyID), KeySpec: types.DataKeySpecAes256, EncryptionContext: bound,
	})
	if err != nil {
		return ports.DataKey{}, err
	}
	if len(out.Plaintext) != shredding.DEKSize || checkWrapped(out.CiphertextBlob) != nil {
		clear(out.Plaintext)
		return ports.DataKey{}, unavailable()
	}
	return ports.DataKey{Plain: shredding.NewSecret(out.Plaintext), Wrapped: out.CiphertextBlob}, nil
}

// Unwrap implements ports.DataKeys.
func (c *Client) Unwrap(ctx context.Context, keyID string, wrapped []byte, bound ports.EncryptionContext) (shredding.Secret, error) {
	if err := checkInput(bound, wrapped); err != nil {
		return shredding.Secret{}, err
	}
	out, err := call(ctx, c, "Decrypt", c.kms.Decrypt, &kms.DecryptInput{
		KeyId: aws.String(keyID), CiphertextBlob: wrapped, EncryptionContext: bound,
	})
	if err != nil {
		return shredding.Secret{}, err
	}
	if len(out.Plaintext) == 0 {
		return shredding.Secret{}, unavailable() // an answer without its content
	}
	if len(out.Plaintext) != shredding.DEKSize {
		clear(out.Plaintext)
		return shredding.Secret{}, ciphertextInvalid()
	}
	return shredding.NewSecret(out.Plaintext), nil
}

var aliasName = regexp.MustCompile(`^alias/[A-Za-z0-9/_-]{1,250}$`)

// Create implements ports.KeyLifecycle. It looks the alias up first and sets it last, so
// that an alias always points at an existing key.
func (c *Client) Create(ctx context.Context, alias string, purpose ports.KeyPurpose) (ports.ManagedKey, error) {
	if !aliasName.MatchString(alias) {
		return ports.ManagedKey{}, requestInvalid()
	}
	found, err := c.Describe(ctx, alias)
	if fault.CodeOf(err) != codeKeyNotFound {
		return found, err
	}
	in := &kms.CreateKeyInput{Description: aws.String(alias)}
	switch purpose {
	case ports.WrapDataKeys:
		in.KeySpec, in.KeyUsage = types.KeySpecSymmetricDefault, types.KeyUsageTypeEncryptDecrypt
	case ports.SignMessages:
		in.KeySpec, in.KeyUsage = types.KeySpecEccNistEdwards25519, types.KeyUsageTypeSignVerify
	default:
		return ports.ManagedKey{}, requestInvalid()
	}
	created, err := call(ctx, c, "CreateKey", c.kms.CreateKey, in)
	if err != nil {
		return ports.ManagedKey{}, err
	}
	made, err := managedKey(created.KeyMetadata)
	if err != nil {
		return ports.ManagedKey{}, err
	}
	_, err = call(ctx, c, "CreateAlias", c.kms.CreateAlias, &kms.CreateAliasInput{AliasName: aws.String(alias), TargetKeyId: aws.String(made.ID)})
	if fault.CodeOf(err) == codeAliasTaken {
		return c.resolveLostRace(ctx, alias, made)
	}
	return made, err
}

// resolveLostRace returns the key that another caller named first, or that this one named
// in a try whose answer was lost. It schedules the deletion of a key that has no name.
func (c *Client) resolveLostRace(ctx context.Context, alias string, made ports.ManagedKey) (ports.ManagedKey, error) {
	winner, err := c.Describe(ctx, alias)
	if err != nil || winner.ID == made.ID {
		return winner, err
	}
	if _, err := c.ScheduleDeletion(ctx, made.ID, 7); err != nil {
		return ports.ManagedKey{}, err
	}
	return winner, nil
}

// Describe implements ports.KeyLifecycle.
func (c *Client) Describe(ctx context.Context, key string) (ports.ManagedKey, error) {
	out, err := call(ctx, c, "DescribeKey", c.kms.DescribeKey, &kms.DescribeKeyInput{KeyId: aws.String(key)})
	if err != nil {
		return ports.ManagedKey{}, err
	}
	return managedKey(out.KeyMetadata)
}

func managedKey(m *types.KeyMetadata) (ports.ManagedKey, error) {
	if m == nil || aws.ToString(m.Arn) == "" {
		return ports.ManagedKey{}, unavailable()
	}
	// The ARN, not the bare id: it names region and account too, so a restored
	// configuration cannot mean another account's key.
	k := ports.ManagedKey{ID: aws.ToString(m.Arn), Purpose: ports.WrapDataKeys, CreatedAt: aws.ToTime(m.CreationDate)}
	if m.KeyUsage == types.KeyUsageTypeSignVerify {
		k.Purpose = ports.SignMessages
	}
	switch m.KeyState {
	case types.KeyStateEnabled:
		k.State = ports.KeyEnabled
	case types.KeyStateDisabled:
		k.State = ports.KeyDisabled
	case types.KeyStatePendingDeletion:
		k.State, k.DeletionAt = ports.KeyPendingDeletion, aws.ToTime(m.DeletionDate)
	default:
		k.State = ports.KeyUnusable
	}
	return k, nil
}

// ReWrap implements ports.KeyLifecycle.
func (c *Client) ReWrap(ctx context.Context, fromKeyID, toKeyID string, wrapped []byte, bound ports.EncryptionContext) ([]byte, error) {
	if err := checkInput(bound, wrapped); err != nil {
		return nil, err
	}
	out, err := call(ctx, c, "ReEncrypt", c.kms.ReEncrypt, &kms.ReEncryptInput{
		SourceKeyId: aws.String(fromKeyID), SourceEncryptionContext: bound, CiphertextBlob: wrapped,
		DestinationKeyId: aws.String(toKeyID), DestinationEncryptionContext: bound,
	})
	if err != nil {
		return nil, err
	}
	if checkWrapped(out.CiphertextBlob) != nil {
		return nil, unavailable()
	}
	return out.CiphertextBlob, nil
}

// ScheduleDeletion implements ports.KeyLifecycle.
func (c *Client) ScheduleDeletion(ctx context.Context, keyID string, days int) (time.Time, error) {
	if days < 7 || days > 30 {
		return time.Time{}, requestInvalid()
	}
	out, err := call(ctx, c, "ScheduleKeyDeletion", c.kms.ScheduleKeyDeletion, &kms.ScheduleKeyDeletionInput{
		KeyId: aws.String(keyID), PendingWindowInDays: aws.Int32(int32(days)),
	})
	if fault.CodeOf(err) == codePendingDeletion {
		k, describeErr := c.Describe(ctx, keyID)
		if describeErr != nil {
			return time.Time{}, describeErr
		}
		if k.State == ports.KeyPendingDeletion {
			return k.DeletionAt, nil
		}
	}
	if err != nil {
		return time.Time{}, err
	}
	if out.DeletionDate == nil {
		return time.Time{}, unavailable()
	}
	return *out.DeletionDate, nil
}

// Sign implements ports.Signer.
func (c *Client) Sign(ctx context.Context, keyID string, message []byte) ([]byte, error) {
	if len(message) == 0 || len(message) > ports.MaximumSignedMessage {
		return nil, requestInvalid()
	}
	out, err := call(ctx, c, "Sign", c.kms.Sign, &kms.SignInput{
		KeyId: aws.String(keyID), Message: message, MessageType: types.MessageTypeRaw, SigningAlgorithm: types.SigningAlgorithmSpecEd25519Sha512,
	})
	if err != nil {
		return nil, err
	}
	if len(out.Signature) != ed25519.SignatureSize {
		return nil, unavailable()
	}
	return out.Signature, nil
}

// PublicKey implements ports.Signer.
func (c *Client) PublicKey(ctx context.Context, keyID string) (ed25519.PublicKey, error) {
	out, err := call(ctx, c, "GetPublicKey", c.kms.GetPublicKey, &kms.GetPublicKeyInput{KeyId: aws.String(keyID)})
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKIXPublicKey(out.PublicKey)
	if err != nil {
		return nil, unavailable().WithCause(err)
	}
	public, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, permanent[errorKeyUsage]()
	}
	return public, nil
}
