// Package ansible is the one door to Ansible: it runs a playbook as a process of its own and tells what happened.
//
// A run gets a private directory with its inventory, keys and secrets, a process group, a minimal environment and no
// standard input. What happens inside is read from the events of our callback plugin (playbooks/callback_plugins),
// never from the exit code alone: ansible-playbook exits with 4 both for an unreachable host and for a playbook that
// cannot be parsed, and with 2 both for a failed task and for a bad option. Nothing that a run printed, and no secret
// that it was given, is part of an error except through the bounded, redacted texts of PlayError.
//
// The package needs Linux: processes are told apart by /proc.
package ansible
