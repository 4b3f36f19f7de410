package wire

import "time"

// CredentialsChange sets or changes credentials.
type CredentialsChange struct {
	User     string `json:"user" doc:"Name of the account." minLength:"1" maxLength:"256"`
	Password string `json:"password" doc:"Its password." minLength:"1" maxLength:"4096"`
}

// Credentials are an account of providers, without its password.
type Credentials struct {
	Name      string    `json:"name"`
	User      string    `json:"user"`
	Revision  int64     `json:"revision" doc:"Counts the changes, from 1."`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`
	Providers []string  `json:"providers,omitempty" doc:"The providers that name them; only in lists."`
}

// CredentialsList is all credentials, ordered by name.
type CredentialsList struct {
	Items []Credentials `json:"items"`
}

// ProviderTest is what a connection test of a provider found.
type ProviderTest struct {
	OK     bool    `json:"ok"`
	Probes []Probe `json:"probes"`
}

// Probe is one thing that a connection test looked at.
type Probe struct {
	Host    string `json:"host,omitempty" doc:"Which of the provider's hosts; absent for the provider as a whole."`
	What    string `json:"what" doc:"What was looked at."`
	OK      bool   `json:"ok"`
	Found   string `json:"found,omitempty" doc:"What was found."`
	Problem string `json:"problem,omitempty" doc:"What is wrong."`
	Hint    string `json:"hint,omitempty" doc:"What to do about it."`
}
