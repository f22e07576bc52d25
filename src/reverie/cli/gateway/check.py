import click
@click.command()
def check():
    pass
