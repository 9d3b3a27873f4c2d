"""Training, the same for all algorithms: experiments, the trainer, the loop, sinks, checkpoints and run folders."""
